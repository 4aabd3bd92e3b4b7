from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import migrations

if TYPE_CHECKING:
    from django.apps.registry import Apps
    from django.db.backends.base.schema import BaseDatabaseSchemaEditor

PRODUCTS = [
    (
        "The last umbrella",
        "Dark blue, wooden handle. There will be no other.",
        "39.00",
        1,
        "umbrella",
    ),
    ("Rubber boots", "For puddles of every depth.", "25.50", 20, "boots"),
    ("Tea for a grey day", "100 g of Assam, strong enough for milk.", "7.80", 100, "tea"),
]


def stock_the_shelves(apps: Apps, _schema_editor: BaseDatabaseSchemaEditor) -> None:
    product = apps.get_model("shop", "Product")
    for name, description, price, stock, picture in PRODUCTS:
        product.objects.create(
            name=name,
            description=description,
            price=price,
            stock=stock,
            picture=f"shop/{picture}.svg",
        )


class Migration(migrations.Migration):
    dependencies = [("shop", "0001_initial")]

    operations = [migrations.RunPython(stock_the_shelves, migrations.RunPython.noop)]

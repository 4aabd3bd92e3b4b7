"""The addresses of the shop."""

from __future__ import annotations

from django.urls import path

from example_project.shop import views

app_name = "shop"
urlpatterns = [
    path("", views.product_list, name="products"),
    path("products/<int:product_id>/", views.checkout, name="checkout"),
    path("orders/<uuid:reference>/", views.order_detail, name="order"),
    path("orders/<uuid:reference>/receipt/", views.resend_receipt, name="resend_receipt"),
]

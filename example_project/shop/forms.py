"""What a customer fills in."""

from __future__ import annotations

from django import forms


class CheckoutForm(forms.Form):
    """Where the receipt goes."""

    email = forms.EmailField(label="Your e-mail address")

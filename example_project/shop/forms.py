"""What a customer fills in."""

from __future__ import annotations

from django import forms


class CheckoutForm(forms.Form):
    """Where the receipt goes, and to whom the parcel."""

    email = forms.EmailField(
        label="Your email address",
        label_suffix="",
        max_length=254,  # as in the model; by itself a form allows more
        help_text="The receipt goes there.",
        error_messages={
            "required": "Enter your email address.",
            "invalid": "Enter a valid email address, such as ada@example.com.",
        },
        widget=forms.EmailInput({"autocomplete": "email"}),
    )
    name = forms.CharField(
        label="Name on the parcel (optional)",
        label_suffix="",
        max_length=100,
        required=False,
        widget=forms.TextInput({"autocomplete": "name"}),
    )

"""Operations for the migrations of projects."""

from __future__ import annotations

from django_pgjobs.operations.base import OnPostgreSQL
from django_pgjobs.operations.maintenance import InstallFunctions, NotifyOnInsert
from django_pgjobs.operations.roles import EnableRowLevelSecurity, GrantRoles

__all__ = [
    "EnableRowLevelSecurity",
    "GrantRoles",
    "InstallFunctions",
    "NotifyOnInsert",
    "OnPostgreSQL",
]

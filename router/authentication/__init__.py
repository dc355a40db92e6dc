"""Who may log in: users and their passwords, tokens and certificates, and authenticators of other packages.

A package that brings an authenticator imports the names below.
"""

from router.authentication.authenticators import (
    MECHANISMS,
    Authenticator,
    Identity,
    Login,
    LoginRefused,
    LoginUndecided,
)

__all__ = ["MECHANISMS", "Authenticator", "Identity", "Login", "LoginRefused", "LoginUndecided"]

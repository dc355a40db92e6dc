"""What the doors of bridge processes have in common: who may stay, TLS, logins of operators, HTTP."""

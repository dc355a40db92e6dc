"""The record of many experiments on real processes: a resumable ledger, its page and its plots."""

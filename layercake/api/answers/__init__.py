"""What the API answers, for its OpenAPI document. The answers are made by layercake/head/views and
operations as plain values; every answer that a test sees is held against these
(tests/support/api.py). Programs shall expect more fields in later versions."""

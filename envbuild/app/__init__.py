"""The application: each verb as plain functions over the stages, without a command line."""

"""The generated wire contract; its source is proto/guard/v1/guard.proto."""

"""Why AWS did not answer a question."""

# The AWS provider writes its own texts when something does not exist. AWS's error codes are not in them.
# terraform-plugin-sdk, helper/retry/error.go
NO_RESOURCE = "couldn't find resource"
# terraform-provider-aws, internal/tfresource/not_found_error.go and internal/service/ec2/vpc_subnet_data_source.go
NO_SUBNET = "no matching EC2 Subnet found"


class NoAnswerError(Exception):
    """The reason for a user, which is the last line of the provider's error."""

    def __init__(self, error: Exception) -> None:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        super().__init__(lines[-1] if lines else type(error).__name__)
        # Whether the thing that was asked for does not exist.
        self.is_missing = any(text in str(error) for text in (NO_RESOURCE, NO_SUBNET))

"""A launch template's own tags stay out of its versions, where moto puts them beside those of what it starts."""

from typing import Any

from moto.ec2.models.launch_templates import LaunchTemplate, LaunchTemplateBackend

_create = LaunchTemplateBackend.create_launch_template


def _create_launch_template(
    self: LaunchTemplateBackend, name: str, description: str, template_data: dict[str, Any], tag_spec: dict[str, Any]
) -> LaunchTemplate:
    given = template_data.pop("TagSpecifications", [])
    if others := [each for each in given if each["ResourceType"] != "launch-template"]:
        template_data["TagSpecifications"] = others
    return _create(self, name, description, template_data, tag_spec)


def apply() -> None:
    LaunchTemplateBackend.create_launch_template = _create_launch_template  # type: ignore[method-assign]

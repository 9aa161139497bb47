"""AlterConfigs (33), versions 0 to 2: replaces all settings of a resource.

Behaviour: settings that are not named go back to their defaults, which is why newer clients use
IncrementalAlterConfigs. With `validate_only` nothing changes.
"""

from odradek.errors import ErrorCode
from odradek.handlers.configs.config_fields import alter_resources, config_resource, fail_resources
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when the settings are in force."""
    body = request.body()
    changes = (
        (config_resource(resource), [(config.name, config.value) for config in resource.configs])
        for resource in body.resources
    )
    alter_resources(request, changes, context.controller.alter_configs)


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error for every resource."""
    fail_resources(request, code)

"""The topic, its e-mail address and the monthly budget."""

from tests.unit.conftest import RunStack
from tests.unit.program import ACCOUNT

TOPIC, BUDGET = "aws:sns/topic:Topic", "aws:budgets/budget:Budget"
SUBSCRIPTION = "aws:sns/topicSubscription:TopicSubscription"
EMAIL = "team@example.com"


def test_no_address_means_no_resources(program: RunStack) -> None:
    graph = program()
    assert not [*graph.all(TOPIC), *graph.all(SUBSCRIPTION), *graph.all(BUDGET)]


def test_the_topic_is_encrypted_and_sends_to_the_address(program: RunStack) -> None:
    graph = program({"notify": {"email": EMAIL}})
    topic = graph.one(TOPIC)
    assert topic.inputs == {"kmsMasterKeyId": f"arn:aws:mock:us-west-2:{ACCOUNT}:key"}
    assert graph.one(SUBSCRIPTION).inputs == {
        "topic": f"arn:aws:mock:us-west-2:{ACCOUNT}:training-messages",
        "protocol": "email",
        "endpoint": EMAIL,
    }
    assert not graph.all(BUDGET)


def test_the_budget_counts_the_stack_and_warns_at_80_and_100_percent(program: RunStack) -> None:
    graph = program({"notify": {"email": EMAIL, "monthlyBudget": 400}}, stack="prod")
    budget = graph.one(BUDGET)
    warnings = [
        {
            "comparisonOperator": "GREATER_THAN",
            "notificationType": "ACTUAL",
            "threshold": percent,
            "thresholdType": "PERCENTAGE",
            "subscriberEmailAddresses": [EMAIL],
        }
        for percent in (80, 100)
    ]
    assert budget.inputs == {
        "name": "paddle-on-aws-prod",
        "accountId": ACCOUNT,
        "budgetType": "COST",
        "timeUnit": "MONTHLY",
        "limitAmount": "400",
        "limitUnit": "USD",
        "costFilters": [{"name": "TagKeyValue", "values": ["user:stack$prod"]}],
        "notifications": warnings,
    }
    assert budget.options.deleteBeforeReplace

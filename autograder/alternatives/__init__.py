"""Right answers in honestly different styles: each must be accepted. One file a module, none of them taught."""


class Styles:
    """Collects alternatives: `@styles("softmax", "by logsumexp")` above a function or class."""

    def __init__(self):
        self.found = []

    def __call__(self, exercise, style):
        """Register what follows as an answer of that exercise, under whatever name it has."""

        def register(answer):
            self.found.append((exercise, style, answer))
            return answer

        return register

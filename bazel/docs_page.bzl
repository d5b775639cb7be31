"""Pages of docs/ that are generated and committed."""

def docs_page(page):
    """`bazel run :update_docs` writes docs/PAGE of the workspace.

    Args:
      page: the target that generates it, one file of the page's name.
    """
    native.sh_binary(
        name = "update_docs",
        srcs = ["//bazel:update_docs.sh"],
        args = ["$(location %s)" % page],
        data = [page],
    )

"""Pages of docs/ that are both generated and committed."""

def docs_page(page):
    """Makes `bazel run :update_docs`, which writes the page to docs/ of the workspace.

    Args:
      page: the target that generates the page: one file with the page's name.
    """
    native.sh_binary(
        name = "update_docs",
        srcs = ["//bazel:update_docs.sh"],
        args = ["$(location %s)" % page],
        data = [page],
    )

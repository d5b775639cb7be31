"""How to link what runs in users' images, with every glibc since 2.17."""

# Before all other folders of libraries. Older systems need the libraries that are empty today.
SINCE_2_17_LINKOPTS = [
    "-L$(BINDIR)/third_party/glibc",
    "-Wl,--no-as-needed",
    "-lpthread",
    "-ldl",
    "-lrt",
    "-Wl,--as-needed",
]

SINCE_2_17_INPUTS = ["//third_party/glibc:link_stubs"]

# A program needs //third_party/glibc:start_2_17, too.
SINCE_2_17_DEPS = ["//third_party/glibc:since_2_17"]

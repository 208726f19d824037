"""Two grammars of the kind that coding agents declare: of patches, and of scripts that may begin with a line for the runner.

Terminals that may be empty are allowed in them, which the Lark library refuses.
"""

from __future__ import annotations

PATCHES = r"""
start: head change+ tail
head: "*** Begin Patch" LF
tail: "*** End Patch" LF?
change: added | deleted | updated
added: "*** Add File: " path LF new_line+
deleted: "*** Delete File: " path LF
updated: "*** Update File: " path LF moved? lines?
moved: "*** Move to: " path LF
lines: (place | line)+ last?
place: ("@@" | "@@ " /(.+)/) LF
line: ("+" | "-" | " ") /(.*)/ LF -> a_line
new_line: "+" /(.*)/ LF
last: "*** End of File" LF
path: /(.+)/
%import common.LF
"""

SCRIPTS = r"""
start: with_head | without
with_head: HEAD LINE_END CODE
without: CODE
HEAD: /[ \t]*\/\/ @exec:[^\r\n]*/
LINE_END: /\r?\n/
CODE: /[\s\S]+/
"""

# gdb reads this when a program that it looks at loads the library. System calls of the program come to the library by
# SIGSYS, as is usual for it: so gdb lets that through without a word.
handle SIGSYS nostop noprint pass

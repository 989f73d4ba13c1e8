# What programs see of the golden images, but for times that are those of the making.
cd /arck
find . -mindepth 1 -printf '%p %y %m %U %G %n %l\n' | LC_ALL=C sort
find . -type f -printf '%p %s\n' | LC_ALL=C sort
find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
find . -newermt 1900-01-01 ! -newermt 2003-01-01 -printf '%p %T+\n' | LC_ALL=C sort
getfattr --absolute-names -R -d . 2>/dev/null | LC_ALL=C sort

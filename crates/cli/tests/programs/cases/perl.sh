# program: perl
# needs: /usr/bin/perl=perl
# version: perl -e 'printf "%vd", $^V'
# compares: output and files of a script that uses files in all ways that perl knows
exec /usr/bin/perl "$APPLICATIONS/perl.pl" "$1"

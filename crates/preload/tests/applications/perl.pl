# What perl scripts do with files. The first argument is the directory.
use strict;
use warnings;
use Cwd qw(getcwd abs_path);
use Fcntl qw(:DEFAULT :flock :seek :mode);
use File::Basename;
use File::Compare;
use File::Copy qw(copy move);
use File::Find;
use File::Path qw(make_path remove_tree);
use File::Temp qw(tempfile tempdir);
use IO::File;
use SDBM_File;
use Storable qw(lock_store lock_retrieve);

my $directory = shift;
chdir $directory or die "chdir: $!";
$| = 1;

sub show { print join(' ', map { defined $_ ? $_ : 'undef' } @_), "\n" }
sub text { my ($name) = @_; open my $f, '<', $name or return "no $name: $!"; local $/; my $t = <$f>; return $t }
sub put { my ($name, $text) = @_; open my $f, '>', $name or die "$name: $!"; print $f $text; close $f or die "$name: $!" }

show '--- files';
put 'a', "one\ntwo\nthree\n";
open my $f, '>>', 'a' or die; print $f "four\n"; close $f;
open $f, '+<', 'a' or die; my @lines = <$f>; show scalar @lines, tell $f; seek $f, 0, SEEK_SET; print $f 'ONE'; close $f; print text 'a';
open $f, '+>', 'b' or die; print $f "x" x 10000; seek $f, 9990, SEEK_SET; show read($f, my $part, 100), eof($f) ? 'eof' : 'more'; close $f; show -s 'b';
open $f, '<', 'none' or show 'none:', $!+0, "$!";
sysopen $f, 'c', O_RDWR | O_CREAT | O_EXCL, 0640 or die; show syswrite($f, "0123456789"), sysseek($f, 3, SEEK_SET), sysread($f, $part, 4), $part, truncate($f, 5); close $f;
show sysopen($f, 'c', O_RDWR | O_CREAT | O_EXCL) ? 'made' : "refused: $!", -s 'c', sprintf '%o', S_IMODE((stat 'c')[2]);
open $f, '>:utf8', 'utf8' or die; print $f "\x{20ac}\x{e9}\n"; close $f; show -s 'utf8'; open $f, '<:encoding(UTF-8)', 'utf8' or die; show length <$f>; close $f;
open $f, '>:crlf', 'crlf' or die; print $f "a\nb\n"; close $f; show -s 'crlf';
{ local $/ = \4; open $f, '<', 'b' or die; my $n = 0; $n++ while <$f>; show $n; close $f }
{ local @ARGV = ('a'); local $^I = '.orig'; while (<>) { s/two/TWO/; print } } print text('a'), text('a.orig');
open my $copy, '>&', \*STDOUT or die; print $copy "a copy of standard output\n"; close $copy;
open my $saved, '>&', \*STDOUT; open STDOUT, '>', 'out' or die; print "to the file\n"; system 'echo', 'from a child'; open STDOUT, '>&', $saved; print text 'out';
open $f, '-|', 'cat', 'a' or die; my @from = <$f>; close $f; show scalar @from; open $f, '|-', 'cat >piped' or die; print $f "piped\n"; close $f; print text 'piped';
my $io = IO::File->new('io', O_RDWR | O_CREAT) or die; $io->print("hello\n"); $io->sync; $io->setpos($io->getpos); $io->binmode; show +(stat $io)[7], $io->opened; undef $io;

show '--- attributes';
show chmod(0600, 'a', 'b'), sprintf '%o', (stat 'a')[2]; show utime(1000, 2000, 'a'), (stat 'a')[8, 9]; utime 3000, 4000, do { open my $h, '<', 'b'; $h }; show +(stat 'b')[9];
symlink 'a', 'soft' or die; link 'a', 'hard' or die; show readlink 'soft', (stat 'hard')[3], -l 'soft' ? 'link' : '', (lstat 'soft')[7]; symlink 'nowhere', 'broken'; show -e 'broken' ? 'there' : 'broken', -l 'broken' ? 'link' : '';
show map { -e "a" && eval "-$_ 'a'" ? $_ : '-' } qw(r w x o R W X O e z s f d l p S b c u g k T B);
truncate 'a', 3; print text('hard'), "\n"; show rename('hard', 'renamed'), rename('none', 'x') ? '' : "$!"; show unlink('soft', 'none', 'broken');

show '--- directories';
show mkdir('d', 0755), mkdir('d') ? '' : "$!", rmdir('none') ? '' : "$!"; make_path 'd/e/f/g', 'd/h'; put "d/file-$_", $_ for 1 .. 200;
opendir my $d, 'd' or die; my @names; my @where; while (1) { push @where, telldir $d; my $n = readdir $d; last unless defined $n; push @names, $n } show scalar @names;
seekdir $d, $where[50]; show readdir($d) eq $names[50] ? 'seek works' : 'seek fails'; rewinddir $d; show scalar(my @again = readdir $d); closedir $d;
show rmdir('d') ? '' : "$!"; my $found = 0; find sub { $found++ if -f }, 'd'; show $found; find { wanted => sub { rmdir if -d && !/^d$/ }, bydepth => 1, no_chdir => 0 }, 'd'; show -d 'd/e' ? 'still' : 'gone';
show scalar(my @g = glob 'd/file-1??'), basename($g[0]), dirname($g[0]); show getcwd eq $directory ? 'here' : getcwd, abs_path('d/../a') eq "$directory/a" ? 'absolute' : abs_path('d/../a');
chdir 'd' or die; show getcwd eq "$directory/d" ? 'in d' : getcwd, -e '../a' ? 'above' : ''; opendir $d, '..' or die; chdir $d or die "fchdir: $!"; closedir $d; show getcwd eq $directory ? 'back' : getcwd;

show '--- modules';
copy 'b', 'b2' or die; show compare('b', 'b2'), move('b2', 'd/b3'), -s 'd/b3'; my ($t, $name) = tempfile('tmp-XXXX', DIR => '.'); print $t "x\n"; close $t; show -s $name; unlink $name;
my $td = tempdir(DIR => $directory, CLEANUP => 1); put "$td/x", 'y'; my $anonymous = File::Temp->new(DIR => $directory); print $anonymous "z"; undef $anonymous;
$Storable::canonical = 1; lock_store { list => [1 .. 1000], name => 'value' }, 'stored'; my $stored = lock_retrieve 'stored'; show scalar @{ $stored->{list} }, $stored->{name};
tie my %db, 'SDBM_File', 'database', O_RDWR | O_CREAT, 0644 or die "SDBM: $!"; $db{"key $_"} = "value $_" for 1 .. 500; show scalar keys %db, $db{'key 77'}; delete $db{"key $_"} for 1 .. 250; untie %db; tie %db, 'SDBM_File', 'database', O_RDONLY, 0644 or die; show scalar(my @k = keys %db); untie %db;

show '--- processes';
open $f, '>', 'shared' or die; $f->autoflush(1); print $f "parent\n"; if (!(my $child = fork // die)) { print $f "child\n"; put 'by-child', "made\n"; exit 7 } wait; show $? >> 8; print $f "parent again\n"; close $f; print text('shared'), text('by-child');
open $f, '>>', 'locked' or die; show flock($f, LOCK_EX | LOCK_NB) ? 'locked' : "$!"; if (!fork) { open my $g, '>>', 'locked'; exit(flock($g, LOCK_EX | LOCK_NB) ? 0 : 5) } wait; show $? >> 8; flock $f, LOCK_UN; close $f;
remove_tree 'd'; show -e 'd' ? 'there' : 'removed'; show `cat a; ls -A | wc -l` =~ s/\n/ /gr; show 'done';

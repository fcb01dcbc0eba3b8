# Runs a program for which file locks do not exist: flock(2) and the locks of
# fcntl(2) are answered with ENOLCK, for it and all that it starts. A library to
# preload would not reach static programs, such as berth.
use strict;
my ($prctl, $fcntl, $flock) = (157, 72, 73); # x86-64
my @locks = (5, 6, 7, 36, 37, 38);           # F_GETLK to F_SETLKW, and those of open file descriptions
my @f = ([0x20, 0, 0, 0], [0x15, 3 + @locks, 0, $flock], [0x15, 0, 1 + @locks, $fcntl], [0x20, 0, 0, 24]);
push @f, [0x15, @locks - $_, 0, $locks[$_]] for 0 .. $#locks;
push @f, [0x06, 0, 0, 0x7fff0000], [0x06, 0, 0, 0x00050000 | 37];
my $code = join '', map { pack 'SCCL', @$_ } @f;
syscall($prctl, 38, 1, 0, 0, 0) == 0 or die "no_new_privs: $!";
syscall($prctl, 22, 2, pack('Sx6P', scalar @f, $code)) == 0 or die "seccomp: $!";
exec @ARGV or die "$ARGV[0]: $!";

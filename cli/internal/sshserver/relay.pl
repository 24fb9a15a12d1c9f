use strict;
use Socket;

socket(my $peer, AF_UNIX, SOCK_STREAM, 0) or die "$!\n";
connect($peer, pack_sockaddr_un($ARGV[0])) or die "$!\n";
$SIG{PIPE} = 'IGNORE';

sub put {
	my ($to, $data) = @_;
	for (my $done = 0; $done < length $data;) {
		my $n = syswrite($to, $data, 65536, $done) or exit;
		$done += $n;
	}
}

put(*STDOUT, $ARGV[1]);
my $sending = fork // die "$!\n";
if (!$sending) {
	close STDOUT;
	close STDERR;
	while (sysread(STDIN, my $data, 65536)) { put($peer, $data) }
	shutdown($peer, 1);
	exit;
}
my $total = 0;
while (sysread($peer, my $data, 65536)) {
	put(*STDOUT, $data);
	$total += length $data;
}
syswrite(STDERR, "$ARGV[1] $total\n");
waitpid($sending, 0);

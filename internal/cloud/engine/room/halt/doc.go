// Package halt stops processes with SIGSTOP, and lets them continue. It is for machines on which no
// control group can freeze processes.
package halt

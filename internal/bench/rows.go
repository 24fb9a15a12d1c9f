//go:build linux

package main

import (
	"slices"
	"strings"

	"github.com/e2bctl/e2bctl/sandbox/local"
)

// row is one line of the table.
type row struct {
	name    string
	runs    int
	measure measurement
	// floor may be nil; floorName describes it.
	floor     measurement
	floorName string
	// elsewhere is the corresponding figure of another project. The README contains the name of that
	// project and the date of the figure.
	elsewhere string
}

// quickRows are the beginnings of the names of the rows that tell most: one of each path that a
// user waits for. One that ends in a newline is a whole name.
var quickRows = []string{
	"create to first command, one", "create to first Python result, one", "memory of an idle sandbox",
	"`RunCode(", "`Commands.Run(\"echo\")`\n", "256 MiB of a command's output", "256 MiB uploaded to a file\n", "256 MiB downloaded from", "256 MiB from a signed URL",
	"a request to a port", "a key to its echo", "to write a file and be told", "a tool of the host", "list of ",
	"paused to the state directory, one file", "forked, one file", "out of a sandbox: connection", "a service of the host",
	"`e2bctl version`",
}

func (r row) isQuick() bool {
	return slices.ContainsFunc(quickRows, func(name string) bool { return strings.HasPrefix(r.name+"\n", name) })
}

// overHTTP is the name of the floor for requests that go through a server.
const overHTTP = "`net/http`"

func (b *bench) rows() []row {
	rows := slices.Concat(b.startRows(), b.callRows(), b.transferRows(), b.eventRows(), b.runRows(), b.controlRows(), b.pauseRows(), b.forkRows())
	if b.images != "" {
		rows = append(rows, b.imageRows()...)
	}
	if slices.Contains(b.engines, local.EngineWasm) {
		rows = append(rows, b.wasmRows()...)
	}
	if slices.Contains(b.engines, local.EngineGVisor) {
		rows = append(rows, b.gvisorRows()...)
	}
	if b.egress == "transparent" {
		rows = append(rows, row{
			name: "out of a sandbox: connection and request", runs: 200, measure: b.inside(outside+"/", 0),
			floor: onHost(0, "-get", outside+"/", "-through", b.proxy), floorName: "from the host",
		}, row{
			name: "a service of the host: connection and request", runs: 200, measure: b.inside(service, 0),
			floor: onHost(0, "-get", "http://"+b.origin+"/"), floorName: "over loopback",
		}, row{
			name: "out of a sandbox: " + b.megabytes("downloaded"), runs: 3, measure: b.inside(outside+"/bulk", b.bulk),
			floor: onHost(b.bulk, "-get", outside+"/bulk", "-through", b.proxy), floorName: "from the host",
		})
	}
	if b.command != "" {
		rows = slices.Concat(rows, b.commandRows(), b.mcpRows())
	}
	rows = append(rows, row{name: "`e2bctl` of a release for linux/amd64, compressed", runs: 1, measure: releaseSize})
	// These come last, because the memory that they leave in pools would count
	// for later rows.
	return append(rows, []row{
		{
			name: count(b.storm, "commands at once"), runs: 1, measure: b.stormed,
			floor: b.stormOnHost, floorName: "bash on the host", elsewhere: "half of them in 775 ms [6]",
		},
		{name: count(b.crowd, "sandboxes in a row, each with a command"), runs: 1, measure: b.crowded(1, runTrue)},
		{name: count(b.crowd, "sandboxes at once, each with a command"), runs: 1, measure: b.crowded(b.crowd, runTrue), elsewhere: "20 in 1.6 s [2]"},
		{name: count(b.crowd, "sandboxes in a row, each with pandas"), runs: 1, measure: b.crowded(1, onePlusOneInPandas)},
		{name: count(b.crowd, "sandboxes at once, each with pandas"), runs: 1, measure: b.crowded(b.crowd, onePlusOneInPandas)},
	}...)
}

// startRows measure sandboxes from their creation to their first answer.
func (b *bench) startRows() []row {
	return []row{
		{
			name: "create to first command, one after the other", runs: 20, measure: b.created(0, runTrue),
			floor: namespaces, floorName: "`/bin/true` in bare namespaces", elsewhere: "130 to 490 ms [1]",
		},
		{
			name: "the same, a pause before each", runs: 10, measure: b.created(b.pause, runTrue),
			floor: namespaces, floorName: "`/bin/true` in bare namespaces",
		},
		{
			name: "create to first Python result, one after the other", runs: 20, measure: b.created(0, onePlusOne),
			floor: driverStart(adding), floorName: "starting the driver on the host",
		},
		{
			name: "create to first Python result, a pause before each", runs: 10, measure: b.created(b.pause, onePlusOne),
			floor: driverStart(adding), floorName: "starting the driver on the host",
		},
		{
			name: "the same with pandas", runs: 10, measure: b.created(b.pause, onePlusOneInPandas),
			floor: driverStart(pandas), floorName: "starting the driver on the host",
		},
		{name: "memory of an idle sandbox, its own", runs: 1, measure: b.idle, elsewhere: "16 MiB [3]"},
	}
}

// callRows returns the rows that measure calls of one sandbox.
func (b *bench) callRows() []row {
	return []row{
		{
			name: "`RunCode(\"1+1\")`", runs: 200, measure: b.inOne(onePlusOne),
			floor: cell(adding), floorName: "the driver over its socket", elsewhere: "64 ms [4]",
		},
		{
			name: "`Commands.Run(\"echo\")`", runs: 100, measure: b.inOne(echo),
			floor: calls(bare("/bin/bash", "-c", "echo hello")), floorName: "bash on the host", elsewhere: "33 to 102 ms [3]",
		},
		{
			name: "`Commands.Exec(\"echo\")`, without a shell", runs: 100, measure: b.inOne(execEcho),
			floor: b.inOne(echo), floorName: "`Commands.Run(\"echo\")`",
		},
		b.echoRow("an empty `.bashrc`", ""),
		b.echoRow("Debian's", "$(cat /etc/skel/.bashrc)"),
		b.echoRow("one that reads, prints and starts programs", "cat; for i in 1 2 3; do date >&2; done"),
		{
			name: "the client's part of that", runs: 1000, measure: clientEcho,
			floor: plainEcho, floorName: overHTTP + ", one request", elsewhere: "326 to 730 µs [5]",
		},
		{
			name: "to cancel a command", runs: 50, measure: b.cancelled,
			floor: cancelOnHost, floorName: "`exec.CommandContext`",
		},
	}
}

// transferRows measure large transfers into and out of a sandbox.
func (b *bench) transferRows() []row {
	return []row{
		{
			name: b.megabytes("of a command's output"), runs: 3, measure: b.transfer(b.commandOutput),
			floor: b.download, floorName: overHTTP, elsewhere: "93 to 145 MB/s, peak 914 MB or more [5]",
		},
		{
			name: b.megabytes("printed by code"), runs: 3, measure: b.transfer(b.codeOutput),
			floor: moving(b.bulk, cell(b.printBulk())), floorName: "the driver over its socket",
		},
		{
			name: count(b.prints, "small prints"), runs: 3, measure: b.inOne(b.manyPrints),
			floor: cell(b.printMany()), floorName: "the driver over its socket",
		},
		{
			name: count(b.errors, "cells that fail, each with one after it"), runs: 1, measure: b.inOne(b.failures),
			floor: driverRuns(func(d *driver) error { return d.errors(b.errors) }), floorName: "the driver over its socket",
		},
		{
			name: b.megabytes("uploaded to a file"), runs: 3, measure: b.transfer(b.uploadFile),
			floor: b.upload, floorName: overHTTP + ", to nowhere", elsewhere: "85 ms to 2 s, peak 11 to 669 MB [5]",
		},
		{
			name: b.megabytes("downloaded from a file"), runs: 3, measure: b.transfer(b.withFile(b.downloadFile)),
			floor: b.download, floorName: overHTTP,
		},
		{
			name: b.megabytes("from a signed URL"), runs: 3, measure: b.transfer(b.withFile(b.signedDownload)),
			floor: b.download, floorName: overHTTP,
		},
	}
}

// eventRows returns the rows about events that travel into a sandbox or out of it. Each row
// measures the time until the receiver has noticed or answered an event.
func (b *bench) eventRows() []row {
	return []row{
		{
			name: "a request to a port", runs: 500, measure: b.port,
			floor: portOnHost, floorName: "the same server on the host",
		},
		{
			name: "a connection to a port by `Forward`, and a request", runs: 100, measure: b.forwarded,
			floor: b.dialled, floorName: "by `Dial`",
		},
		{
			name: "a key to its echo in a terminal", runs: 500, measure: b.typed,
			floor: typedOnHost, floorName: "a terminal of the host",
		},
		{
			name: "to write a file and be told by a watch", runs: 100, measure: b.watched,
			floor: watchOnHost, floorName: "fsnotify on the host",
		},
	}
}

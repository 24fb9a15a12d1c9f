package mcpserver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/agent"
)

// newCall returns a call without a sandbox.
func newCall() *call { return &call{server: &endpoint{Server: &Server{outputs: newOutputs()}}} }

// TestLimits checks the bounds of timeout_seconds, and that the limit has a cause of its own.
func TestLimits(t *testing.T) {
	t.Parallel()
	for seconds, want := range map[int]time.Duration{0: time.Minute, 1: time.Second, 3600: time.Hour, 3601: 0, -1: 0} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			ctx, cancel, after, err := limit(t.Context(), seconds, time.Minute)
			if (err != nil) != (want == 0) || after != want {
				t.Errorf("%d seconds: got %v and error %v, want %v", seconds, after, err, want)
			}
			if err != nil {
				return
			}
			defer cancel()
			<-ctx.Done()
			if took := time.Since(began); took != want || !errors.Is(context.Cause(ctx), errTooLong) {
				t.Errorf("%d seconds: it ended after %v by %v", seconds, took, context.Cause(ctx))
			}
		})
	}
	for d, want := range map[time.Duration]string{0: "0s", 1499 * time.Microsecond: "1ms", 999499 * time.Microsecond: "999ms", time.Second: "1s", 1249 * time.Millisecond: "1.2s", time.Minute + time.Millisecond: "1m0s"} {
		if got := roundTime(d).String(); got != want {
			t.Errorf("%v: got %s, want %s", d, got, want)
		}
	}
}

// TestTurns checks that calls proceed one at a time, and that one that waits ends with its cause.
func TestTurns(t *testing.T) {
	t.Parallel()
	turn, cause := newTurn(), errors.New("the client has gone")
	must.Do(t, turn.acquire(t.Context()))
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	must.Is(t, turn.acquire(ctx), cause)
	turn.release()
	must.Do(t, turn.acquire(t.Context()))
	done := make(chan struct{})
	must.Is(t, wait(ctx, done), cause)
	close(done)
	must.Do(t, wait(t.Context(), done))
	first, second := errors.New("first"), errors.New("second")
	err := each([]error{first, nil, second}, func(err error) error { return err })
	if !errors.Is(err, first) || !errors.Is(err, second) || each(nil, func(error) error { return first }) != nil {
		t.Errorf("got error %v, want both", err)
	}
}

// TestToolsOfAServer checks which tools a server has, their annotations, and the defaults of its configuration.
func TestToolsOfAServer(t *testing.T) {
	t.Parallel()
	publish := func(context.Context, *sandbox.Sandbox, int) (string, func() error, error) { return "", nil, nil }
	usual := slices.DeleteFunc(Tools(), func(name string) bool { return name == publishName || name == searchName })
	for name, tt := range map[string]struct {
		config Config
		want   []string
		err    string
	}{
		"nothing":       {Config{}, usual, ""},
		"everything":    {Config{Publish: publish, Proxies: make([]Proxy, 1)}, Tools(), ""},
		"two":           {Config{Tools: []string{"bash", "run_python"}}, []string{"run_python", "bash"}, ""},
		"an unknown":    {Config{Tools: []string{"bash", "fly"}}, nil, `there is no tool "fly": the tools are run_python, bash, `},
		"no publishing": {Config{Tools: []string{publishName}}, nil, publishName + " is not served: "},
		"no proxies":    {Config{Tools: []string{searchName}, Publish: publish}, nil, searchName + " is not served: "},
	} {
		s, err := New(tt.config)
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) || errors.Is(err, ErrNotConfigured) != strings.Contains(tt.err, "not served") {
			t.Errorf("%s: got error %v, want %q", name, err, tt.err)
		}
		if err != nil {
			continue
		}
		var got []string
		for _, tool := range s.tools {
			got = append(got, tool.name)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" || s.config.Idle != DefaultIdle || s.config.MaxSandboxes != DefaultMaxSandboxes || s.patience != answerPatience {
			t.Errorf("%s: got %+v, tools (-want +got):\n%s", name, s.config, diff)
		}
		must.Do(t, s.Close())
	}
	set, err := New(Config{Idle: time.Second, MaxSandboxes: 3})
	if err != nil || set.config.Idle != time.Second || set.config.MaxSandboxes != 3 {
		t.Errorf("got %+v and error %v, want what was set", set.config, err)
	}
	yes, no := true, false
	if diff := cmp.Diff(&sdk.ToolAnnotations{Title: "t", ReadOnlyHint: true, DestructiveHint: &no, OpenWorldHint: &yes}, hints("t", true, false, true)); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
}

// TestInstructions checks which sentences a model gets.
func TestInstructions(t *testing.T) {
	t.Parallel()
	const session, fresh, proxies = "the one sandbox of this session", "A call without an id makes a new, empty sandbox", "find them with " + searchName
	const stays, ends = "Sandboxes stay after the session", "A sandbox ends when nothing has used it for 1m0s"
	for _, tt := range []struct {
		config   Config
		sessions bool
		has, not []string
		lines    int
	}{
		{Config{Idle: time.Minute}, true, []string{session, ends}, []string{fresh, stays, proxies}, 5},
		{Config{Idle: time.Minute, Place: "It is here.", Keep: true, Proxies: make([]Proxy, 1)}, false, []string{fresh, stays, proxies, "\nIt is here.\n"}, []string{session, ends}, 7},
	} {
		got := (&Server{config: tt.config}).instructions(tt.sessions)
		for _, part := range tt.has {
			if !strings.Contains(got, part) {
				t.Errorf("got %q, want %q in it", got, part)
			}
		}
		for _, part := range tt.not {
			if strings.Contains(got, part) {
				t.Errorf("got %q with %q in it", got, part)
			}
		}
		if n := strings.Count(got, "\n") + 1; n != tt.lines {
			t.Errorf("got %d lines, want %d: %q", n, tt.lines, got)
		}
	}
}

// TestAnswers checks the contents of an answer, in their order, and when it is full.
func TestAnswers(t *testing.T) {
	t.Parallel()
	picture := &sdk.ImageContent{MIMEType: "image/png", Data: []byte("p")}
	ignoring := cmpopts.IgnoreUnexported(sdk.CallToolResult{})
	var a answer
	a.print("")
	a.print("one\n\n")
	a.attach(picture)
	a.print("two")
	a.note("at %s", "x\ny\x1b[1m")
	a.note("%s", strings.Repeat("n", 2*maxNote))
	long := "[" + strings.Repeat("n", maxNote) + "…]"
	want := []sdk.Content{&sdk.TextContent{Text: "one\n\ntwo"}, picture, &sdk.TextContent{Text: "[at x y]\n" + long}}
	if diff := cmp.Diff(&sdk.CallToolResult{Content: want}, a.result(), ignoring); diff != "" {
		t.Errorf("an answer (-want +got):\n%s", diff)
	}
	want[2] = &sdk.TextContent{Text: "[error: it broke]\n[at x y]\n" + long}
	if diff := cmp.Diff(&sdk.CallToolResult{Content: want, IsError: true}, a.failed(errors.New("it broke")), ignoring); diff != "" {
		t.Errorf("a failure (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(&sdk.CallToolResult{Content: []sdk.Content{}}, new(answer).result(), ignoring); diff != "" {
		t.Errorf("nothing (-want +got):\n%s", diff)
	}
	for name, tt := range map[string]struct {
		a    answer
		more func(*answer)
	}{
		"text":     {answer{size: maxTexts - 1}, func(a *answer) { a.print("x") }},
		"media":    {answer{media: make([]sdk.Content, maxMedia-1)}, func(a *answer) { a.attach(&sdk.ResourceLink{}) }},
		"pictures": {answer{pictures: maxPictures - 1}, func(a *answer) { a.attach(picture) }},
	} {
		before := tt.a.isFull()
		if tt.more(&tt.a); before || !tt.a.isFull() {
			t.Errorf("%s: it was full: %v, and is: %v", name, before, tt.a.isFull())
		}
	}
}

// TestReadLines checks which lines of a file are read, and the words of an answer about the others.
func TestReadLines(t *testing.T) {
	t.Parallel()
	exact, over := strings.Repeat("x", maxLine-1)+"\n", strings.Repeat("x", maxLine)+"\n"
	half := strings.Repeat("h", maxLine-1) + "\n"
	last := strings.Repeat("y", maxText-16*maxLine-1) + "\n"
	for name, tt := range map[string]struct {
		text          string
		offset, limit int
		want          string
		note, failure string
	}{
		"all":                    {text: "a\nb\n", want: "a\nb"},
		"without an end":         {text: "a\nb", want: "a\nb"},
		"empty":                  {note: "the file is empty"},
		"empty, from the first":  {offset: 1, note: "the file is empty"},
		"from the second":        {text: "a\nb\nc", offset: 2, want: "b\nc"},
		"the last":               {text: "a\nb\n", offset: 2, want: "b"},
		"after the last":         {text: "a\nb\n", offset: 3, failure: "f has 2 lines: there is no line 3"},
		"as many as there are":   {text: "a\nb\n", limit: 2, want: "a\nb"},
		"fewer":                  {text: "a\nb\nc\n", limit: 2, want: "a\nb", note: "lines 1 to 2; there are more: go on with offset 3"},
		"some in the middle":     {text: "a\nb\nc\nd\n", offset: 2, limit: 2, want: "b\nc", note: "lines 2 to 3; there are more: go on with offset 4"},
		"a line of its most":     {text: exact, want: exact[:maxLine-1]},
		"a line of more":         {text: over + "b\n", want: over[:maxLine] + "…\nb", note: "1 lines are longer than 2000 bytes: the rest of each is left out"},
		"a long line before":     {text: over + "b\n", offset: 2, want: "b"},
		"a line of cut runes":    {text: strings.Repeat("ü", maxLine) + "\n", want: strings.Repeat("ü", maxLine/2) + "…", note: "1 lines are longer than 2000 bytes: the rest of each is left out"},
		"as much text as may be": {text: strings.Repeat(half, maxText/maxLine), want: strings.TrimSuffix(strings.Repeat(half, maxText/maxLine), "\n")},
		"exactly as much":        {text: strings.Repeat(half, 16) + last, want: strings.Repeat(half, 16) + strings.TrimSuffix(last, "\n")},
		"a byte more than that":  {text: strings.Repeat(half, 16) + "y" + last, want: strings.TrimSuffix(strings.Repeat(half, 16), "\n"), note: "lines 1 to 16; there are more: go on with offset 17"},
		"more text than an answer": {text: strings.Repeat(half, maxText/maxLine+1), want: strings.TrimSuffix(strings.Repeat(half, maxText/maxLine), "\n"),
			note: fmt.Sprintf("lines 1 to %d; there are more: go on with offset %d", maxText/maxLine, maxText/maxLine+1)},
	} {
		c := newCall()
		err := c.readLines(bufio.NewReaderSize(strings.NewReader(tt.text), 16), readArguments{Path: "f", Offset: tt.offset, Limit: tt.limit})
		if got := fmt.Sprint(err); got != tt.failure && (err != nil || tt.failure != "") {
			t.Errorf("%s: got error %v, want %q", name, err, tt.failure)
		}
		if got := strings.Join(c.answer.text, "|"); got != tt.want || strings.Join(c.answer.notes, "|") != tt.note {
			t.Errorf("%s: got %d bytes %.40q and the notes %q, want %d bytes %.40q and %q", name, len(got), got, c.answer.notes, len(tt.want), tt.want, tt.note)
		}
	}
	for text, want := range map[string]bool{"": true, "text ü": true, "a\x00b": false, "bad\xff\xfe text": false, "cut \xc3": true} {
		if got := isText([]byte(text)); got != want {
			t.Errorf("%q is text: %v, want %v", text, got, want)
		}
	}
}

// TestKeptOutput checks what an answer says about output of different lengths, and the target of the link.
func TestKeptOutput(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]string{0: "", maxText: "", maxText + 1: "all of it is at the link", maxKept: "all of it is at the link", maxKept + 1: "its first 4 MiB are at the link"} {
		c, s := newCall(), newStream()
		for text := strings.Repeat("x", size); len(text) > 0; {
			n := min(len(text), 1_000_000)
			if written, err := s.Write([]byte(text[:n])); written != n || err != nil {
				t.Fatalf("got %d, %v, want %d", written, err, n)
			}
			text = text[n:]
		}
		s.into(c, "o.txt")
		if got := strings.Join(c.answer.notes, "|"); (got == "") != (want == "") || !strings.Contains(got, want) || want != "" && !strings.Contains(got, fmt.Sprintf("has %d bytes", size)) {
			t.Errorf("%d bytes: got the note %q, want %q", size, got, want)
		}
		if len(c.answer.text) != min(size, 1) || len(c.answer.media) != len(c.server.outputs.kept) || (want != "") != (len(c.answer.media) == 1) {
			t.Errorf("%d bytes: got %d texts and %d links", size, len(c.answer.text), len(c.answer.media))
		}
		for _, kept := range c.server.outputs.kept {
			if len(kept.content) != min(size, maxKept) || kept.mimeType != "text/plain" {
				t.Errorf("%d bytes: %d bytes of %s are kept", size, len(kept.content), kept.mimeType)
			}
		}
	}
	o := newOutputs()
	text, blob := o.keep("a", "text/html", []byte("<b>")), o.keep("b", "image/png", []byte("png"))
	size := int64(3)
	if diff := cmp.Diff(&sdk.ResourceLink{URI: blob.URI, Name: "b", MIMEType: "image/png", Size: &size}, blob); diff != "" || !strings.HasPrefix(blob.URI, outputPrefix) || !strings.HasSuffix(blob.URI, "/b") {
		t.Errorf("a link (-want +got):\n%s", diff)
	}
	for uri, want := range map[string]*sdk.ResourceContents{
		text.URI: {URI: text.URI, MIMEType: "text/html", Text: "<b>"}, blob.URI: {URI: blob.URI, MIMEType: "image/png", Blob: []byte("png")}, outputPrefix + "x/a": nil,
	} {
		got, err := o.read(t.Context(), &sdk.ReadResourceRequest{Params: &sdk.ReadResourceParams{URI: uri}})
		if (err == nil) != (want != nil) || want != nil && !cmp.Equal(got.Contents, []*sdk.ResourceContents{want}) {
			t.Errorf("%s: got %+v and error %v, want %+v", uri, got, err, want)
		}
	}
	o = newOutputs()
	for range maxOutputs / maxKeptPicture {
		o.keep("x", "", make([]byte, maxKeptPicture))
	}
	if o.bytes != maxOutputs || len(o.kept) != maxOutputs/maxKeptPicture {
		t.Errorf("%d bytes are kept, want all %d", o.bytes, maxOutputs)
	}
	if o.keep("y", "", nil); len(o.kept) != maxOutputs/maxKeptPicture+1 {
		t.Error("an empty output displaced another one")
	}
	if o.keep("z", "", []byte("z")); len(o.kept) != maxOutputs/maxKeptPicture+1 || o.bytes != maxOutputs-maxKeptPicture+1 {
		t.Errorf("%d outputs of %d bytes are kept, want one less", len(o.kept), o.bytes)
	}
}

// TestResults checks what an answer shows of each kind of result, and how many results it shows.
func TestResults(t *testing.T) {
	t.Parallel()
	quoted := func(text string) json.RawMessage {
		data, err := json.Marshal(text)
		must.Do(t, err)
		return data
	}
	result := func(values ...string) sandbox.Result {
		r := sandbox.Result{Data: map[string]json.RawMessage{}}
		for i := 0; i < len(values); i += 2 {
			r.Data[values[i]] = quoted(values[i+1])
		}
		return r
	}
	for name, tt := range map[string]struct {
		result sandbox.Result
		text   string
		links  []string
	}{
		"text":             {result("text/plain", "hello"), "hello", nil},
		"text and a page":  {result("text/plain", "hello", "text/html", "<p>"), "hello", nil},
		"a page":           {result("text/html", "<p>"), "", []string{"result-1.html text/html"}},
		"a drawing":        {result("image/svg+xml", "<svg/>"), "", []string{"result-1.svg image/svg+xml"}},
		"a document":       {result("application/pdf", "aGk="), "", []string{"result-1.pdf application/pdf"}},
		"a drawing, text":  {result("text/plain", "t", "image/svg+xml", "<svg/>", "application/pdf", "aGk="), "t", []string{"result-1.svg image/svg+xml", "result-1.pdf application/pdf"}},
		"a broken picture": {result("image/png", "aGk=", "text/plain", "t"), "", []string{"result-1.png image/png"}},
		"a broken photo":   {result("image/jpeg", "aGk="), "", []string{"result-1.jpg image/jpeg"}},
		"nothing":          {result(), "", nil},
	} {
		c := newCall()
		c.addResults(t.Context(), []sandbox.Result{tt.result})
		var links []string
		for _, m := range c.answer.media {
			link := m.(*sdk.ResourceLink)
			links = append(links, link.Name+" "+link.MIMEType)
		}
		if diff := cmp.Diff(tt.links, links); diff != "" || strings.Join(c.answer.text, "|") != tt.text {
			t.Errorf("%s: got the text %q, links (-want +got):\n%s", name, c.answer.text, diff)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tt := range map[string]struct {
		ctx   context.Context //nolint:containedctx // of the case
		n     int
		shown int
	}{"as many as fit": {t.Context(), maxMedia, maxMedia}, "more": {t.Context(), maxMedia + 2, maxMedia}, "ended": {ended, 3, 0}} {
		c := newCall()
		c.addResults(tt.ctx, slices.Repeat([]sandbox.Result{result("image/svg+xml", "<svg/>")}, tt.n))
		want := ""
		if left := tt.n - tt.shown; left > 0 {
			want = fmt.Sprintf("%d more results are left out: show fewer, or write them to files", left)
		}
		if len(c.answer.media) != tt.shown || strings.Join(c.answer.notes, "|") != want {
			t.Errorf("%s: got %d links and the notes %q, want %d and %q", name, len(c.answer.media), c.answer.notes, tt.shown, want)
		}
	}
	for size, kept := range map[int]int{maxKeptPicture: 1, maxKeptPicture + 1: 0} {
		c := newCall()
		c.attachFile("f", "x/y", make([]byte, size))
		if len(c.answer.media) != kept || len(c.answer.notes) != 1-kept {
			t.Errorf("a file of %d bytes: got %d links and the notes %q", size, len(c.answer.media), c.answer.notes)
		}
	}
}

// TestSearchIsBounded checks how many functions an answer shows, and that it names the number of the others.
func TestSearchIsBounded(t *testing.T) {
	t.Parallel()
	// sized returns a function whose text has a size.
	sized := func(name string, size int) agent.Tool {
		of := func(length int) agent.Tool {
			tool, err := agent.NewTool(name, strings.Repeat("d", length), func(context.Context, struct{}) (int, error) { return 0, nil })
			must.Do(t, err)
			return tool
		}
		return of(size - len(of(1).Prompt()) + 1)
	}
	const half = maxText / 2
	for name, tt := range map[string]struct {
		sizes []int
		query string
		shown int
		notes []string
	}{
		"none":              {nil, "", 0, []string{"0 of 0 functions"}},
		"as many as fit":    {[]int{half, half}, "", 2, []string{"2 of 2 functions"}},
		"a byte too many":   {[]int{half, half + 1}, "", 1, []string{"1 of 2 functions", "1 more match: name more words"}},
		"smaller ones":      {[]int{half, half + 1, half, half + 1}, "", 2, []string{"2 of 4 functions", "2 more match: name more words"}},
		"a very large one":  {[]int{2 * maxText}, "", 1, []string{"1 of 1 functions"}},
		"those that match":  {[]int{1000, 1000, 1000}, "t1", 1, []string{"1 of 3 functions"}},
		"none of them does": {[]int{1000}, "other", 0, []string{"0 of 1 functions"}},
	} {
		e := &endpoint{Server: &Server{}}
		e.config.Proxies = []Proxy{{Name: "a"}}
		e.proxies = newProxies(&e.config)
		var tools []agent.Tool
		for n, size := range tt.sizes {
			tools = append(tools, sized(fmt.Sprintf("t%d", n), size))
		}
		e.proxies.servers["a"] = &proxied{began: closedChannel(), ended: make(chan struct{}), tools: tools}
		got := pieces(e.search(t.Context(), tt.query))
		if want := "[" + strings.Join(tt.notes, "]\n[") + "]"; got.notes != want || got.isError || strings.Count(got.text, "def t") != tt.shown {
			t.Errorf("%s: got %d functions with %q, want %d with %q", name, strings.Count(got.text, "def t"), got.notes, tt.shown, want)
		}
		e.config.AllowTools = []string{"b.x"}
		if got := pieces(e.search(t.Context(), tt.query)); !got.isError || !strings.Contains(got.notes, "no server has the tools b.x") {
			t.Errorf("%s: got %+v, want an error", name, got)
		}
		e.proxies.close()
	}
}

// TestRanked checks the order of functions for a query.
func TestRanked(t *testing.T) {
	t.Parallel()
	var tools []agent.Tool
	for _, doc := range []string{"reads a file", "writes a file", "Reads mail", "else"} {
		tool, err := agent.NewTool("t"+strings.ReplaceAll(doc, " ", "_"), doc, func(context.Context, struct{}) (int, error) { return 0, nil })
		must.Do(t, err)
		tools = append(tools, tool)
	}
	for query, want := range map[string]string{
		"": "0 1 2 3", "  ": "0 1 2 3", "FILE": "0 1", "reads file": "0 1 2", "mail reads": "2 0", "telse": "3", "nothing": "",
	} {
		var got []string
		for _, t := range ranked(tools, query) {
			got = append(got, fmt.Sprint(slices.IndexFunc(tools, func(other agent.Tool) bool { return other.Name() == t.Name() })))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: got %v, want %s", query, got, want)
		}
	}
}

// TestEndOfCommand checks how much of a command's last line is read, and which part of its output may belong to that line.
func TestEndOfCommand(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{"": 0, "x": 0, "\n": 1, "x\nW": 2, "\n\n": 1, "\nWORD": 5, "\nWORD ": 0, "WORD": 0} {
		if got := overlap([]byte(text), []byte("\nWORD ")); got != want {
			t.Errorf("%q: got %d, want %d", text, got, want)
		}
	}
	for size, ended := range map[int]bool{maxEndLine: false, maxEndLine + 1: true} {
		c := &shellCall{mark: []byte("\nWORD "), out: newStream(), done: make(chan shellStatus, 1)}
		rest := c.take([]byte("out\nWORD 7 " + strings.Repeat("d", size-2)))
		if len(rest) != 0 || c.ended != ended || len(c.done) != map[bool]int{true: 1}[ended] {
			t.Errorf("a line of %d bytes: it is the end: %v, want %v", size, c.ended, ended)
		}
		if ended {
			if status := <-c.done; status.code != 7 || len(status.dir) != size-2 || string(c.take([]byte("more"))) != "more" {
				t.Errorf("a line of %d bytes: got the status %d in %d bytes", size, status.code, len(status.dir))
			}
		}
		if got := c.out.ends.Text(); got != "out" {
			t.Errorf("got the output %q", got)
		}
	}
}

// TestWordsAboutCheckpoints checks what a model learns about a checkpoint, and its name in the service.
func TestWordsAboutCheckpoints(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	for want, memory := range map[string]*bool{"and on E2B's service": nil, "the variables and the processes": &yes, "neither variables nor processes": &no} {
		if got := contents(memory); !strings.Contains(got, want) {
			t.Errorf("got %q, want %q in it", got, want)
		}
	}
	if got := checkpointName("OWNER", "abc"); got != "e2bctl-mcp-owner-abc" {
		t.Errorf("got %s", got)
	}
}

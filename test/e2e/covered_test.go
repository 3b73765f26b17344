package e2e

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"

	"github.com/msghandler/msghandler/test/programs"
	"github.com/msghandler/msghandler/test/servers"
)

var covered = flag.Bool("covered", false, "count the files of a coordinator that one message executes (builds one)")

// fewCovered is the aim for the files that one message executes. The figure is reported, not held.
const fewCovered = 45

// TestSubmitExecutesFewFiles counts the files in which a coordinator executes lines for one message, from
// SendHalfMessage to DONE, that a coordinator without messages does not execute. Generated files do not count.
func TestSubmitExecutesFewFiles(t *testing.T) {
	if !*covered {
		return
	}
	binary := filepath.Join(t.TempDir(), "msghandler")
	build := exec.Command("go", "build", "-cover", "-coverpkg=github.com/msghandler/msghandler/...", "-o", binary,
		"github.com/msghandler/msghandler/cmd/msghandler")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	idle := coveredBy(t, binary, func(*world, *plainProducer) {})
	with := coveredBy(t, binary, func(w *world, p *plainProducer) {
		p.sendHalves(time.Minute, &pb.Message{Id: "1", RoutingKey: "bills", Body: []byte("one")})
		if state := p.submit("1", pb.Wait_WAIT_DONE); state != pb.State_STATE_DONE {
			t.Fatalf("the message is %v", state)
		}
	})
	var files []string
	for block := range with {
		file, _, _ := strings.Cut(block, ":")
		if !idle[block] && !strings.HasSuffix(file, ".pb.go") && !slices.Contains(files, file) {
			files = append(files, file)
		}
	}
	slices.Sort(files)
	t.Logf("executed for one message:\n%s", strings.Join(files, "\n"))
	t.Logf("FIGURE files that a Submit executes, by coverage: %d (aim %d)", len(files), fewCovered)
	if len(files) == 0 {
		t.Error("no file was executed for a message")
	}
}

// coveredBlock is a line of a coverage profile whose block was executed, with FILE:FROM,TO in the first group.
var coveredBlock = regexp.MustCompile(`(?m)^(\S+) \d+ [1-9]\d*$`)

// coveredBy lists the blocks that a coordinator executes from its start to its end.
func coveredBy(t *testing.T, binary string, use func(*world, *plainProducer)) map[string]bool {
	t.Helper()
	w, counters, profile := newWorld(t), t.TempDir(), filepath.Join(t.TempDir(), "profile")
	w.bind(w.channel(), "bills", "bill.*", "amq.topic")
	addresses := servers.Addresses(t, 2)
	c := &coordinator{grpc: addresses[0], http: addresses[1]}
	c.Process = programs.StartCommand(t, append(w.environment(c), "GOCOVERDIR="+counters), exec.Command(binary, "serve"))
	c.Ready(c.http)
	use(w, newPlainProducer(t, "billing", c.grpc))
	for _, loop := range []string{"confirm", "send"} {
		passes := regexp.MustCompile(`(?m)^msghandler_loop_passes_total\{loop="` + loop + `"\} ([3-9]|\d\d+)$`)
		servers.Eventually(t, time.Minute, "the loop "+loop+" has made three passes", func() bool {
			_, metrics := programs.Page(c.http, "/metrics")
			return passes.MatchString(metrics)
		})
	}
	c.Stop(time.Minute)
	convert := exec.Command("go", "tool", "covdata", "textfmt", "-i="+counters, "-o="+profile)
	if out, err := convert.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(profile)
	if err != nil {
		t.Fatal(err)
	}
	blocks := map[string]bool{}
	for _, found := range coveredBlock.FindAllStringSubmatch(string(text), -1) {
		blocks[found[1]] = true
	}
	return blocks
}

package deploy

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// runbooks are the pages of the person who was woken.
var runbooks = []string{"docs/reference/alerts.md", "docs/run/symptoms.md"}

var (
	logLines = regexp.MustCompile("log lines?,? ((?:`[^`]+`(?:,| and | or )?)+)")
	codeSpan = regexp.MustCompile("`([^`]+)`")
	// joint is where a string of the sources goes on in the next line.
	joint = regexp.MustCompile(`"\s*\+\s*"`)
)

// An operator searches the log for the words of a runbook, so a log line with other words would not be found.
func TestRunbooksQuoteLogLines(t *testing.T) {
	t.Parallel()
	sources := joint.ReplaceAllString(sourcesOfPrograms(t), "")
	quoted := 0
	for _, page := range runbooks {
		text := strings.Join(strings.Fields(read(t, page)), " ")
		for _, found := range logLines.FindAllStringSubmatch(text, -1) {
			for _, line := range codeSpan.FindAllStringSubmatch(found[1], -1) {
				quoted++
				if !strings.Contains(sources, line[1]) {
					t.Errorf("%s quotes the log line %q, and the sources have no such text", page, line[1])
				}
			}
		}
	}
	if quoted < 20 {
		t.Errorf("found only %d log lines on the pages", quoted)
	}
}

func TestRunbooksNameExistingMetrics(t *testing.T) {
	t.Parallel()
	known := registeredAndRecorded(t)
	for _, ofADatabase := range []string{"msghandler_markers", "msghandler_outbox", "msghandler_outbox_notify"} {
		known[ofADatabase] = true
	}
	for _, page := range runbooks {
		if missing := unknown(read(t, page), known); len(missing) > 0 {
			t.Errorf("%s names the metrics %v, which do not exist", page, missing)
		}
	}
}

// sourcesOfPrograms are the sources of all packages, without their tests.
func sourcesOfPrograms(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, folder := range []string{"internal", "broker", "dev", "producer", "consumer", "proto/certs"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			all.Write(source)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}

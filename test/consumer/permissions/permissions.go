// Package permissions reads the permissions of consumers from their page, so that tests run with exactly these.
package permissions

import (
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

var inCode = regexp.MustCompile("`([^`]+)`")

// Of returns the permissions in the row of a broker, such as "NATS: publish".
func Of(t testing.TB, row string) (permissions []string) {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	page, err := os.ReadFile(filepath.Join(filepath.Dir(here), "../../../docs/reference/consumer-sdk.md"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.ReplaceAll(line, `\|`, "\x00"), "|")
		if len(cells) < 3 || strings.TrimSpace(cells[1]) != row {
			continue
		}
		for _, code := range inCode.FindAllStringSubmatch(cells[2], -1) {
			permissions = append(permissions, strings.ReplaceAll(code[1], "\x00", "|"))
		}
	}
	if len(permissions) == 0 {
		t.Fatalf("the page has no permissions in the row %q", row)
	}
	return permissions
}

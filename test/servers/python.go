package servers

import (
	"os/exec"
	"strings"
	"testing"
)

// Python finds a Python with these modules: the first Python of the PATH may have none. Without one the test is
// skipped, except in CI.
func Python(t testing.TB, modules ...string) string {
	t.Helper()
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(python, "-c", "import "+strings.Join(modules, ", ")).Run() == nil {
			return python
		}
	}
	Missing(t, "no python3 has "+strings.Join(modules, " and ")+"; scripts/install-test-servers.sh installs them")
	return ""
}

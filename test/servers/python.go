package servers

import (
	"os"
	"os/exec"
	"testing"
)

// PythonWithGRPC finds a Python with gRPC and the generator of its stubs. Without one the test is skipped, except in
// CI.
func PythonWithGRPC(t testing.TB) string {
	t.Helper()
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(python, "-c", "import grpc, grpc_tools").Run() == nil {
			return python
		}
	}
	const reason = "no python3 has grpc and grpc_tools; scripts/install-test-servers.sh installs them"
	if os.Getenv("CI") == "true" {
		t.Fatal(reason)
	}
	t.Skip(reason)
	return ""
}

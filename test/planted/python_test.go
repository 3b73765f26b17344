package planted

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/msghandler/msghandler/test/servers"
)

// The same bugs in examples/python/producer.py, on SQLite.
func TestPlantedBugsInPythonAreFound(t *testing.T) {
	t.Parallel()
	addresses := startPython(t)
	findAll(t, func(t *testing.T, b bug) (first, second string) {
		t.Helper()
		return addresses[b.name][0], addresses[b.name][1]
	})
}

// startPython serves a producer with each bug, and returns their addresses.
func startPython(t *testing.T) map[string][2]string {
	t.Helper()
	python, root := servers.Python(t, "grpc", "grpc_tools"), filepath.Join("..", "..")
	dir := t.TempDir()
	stubs := exec.Command(python, "-m", "grpc_tools.protoc", "-I", "proto", "--python_out="+dir, "--grpc_python_out="+dir,
		"proto/msghandler/v1/msghandler.proto")
	stubs.Dir = root
	if out, err := stubs.CombinedOutput(); err != nil {
		t.Fatalf("make the stubs: %v\n%s", err, out)
	}
	tokens := filepath.Join(dir, "tokens")
	if err := os.WriteFile(tokens, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"wrong.py", "--directory", dir, "--tokens", tokens, "none", "database-away"}
	for _, b := range bugs {
		args = append(args, b.name)
	}
	cmd := exec.Command(python, args...)
	cmd.Env = append(os.Environ(), fmt.Sprintf("PYTHONPATH=%s:%s", dir, filepath.Join(root, "examples", "python")))
	cmd.Stderr = t.Output()
	return start(t, cmd, len(bugs)+2)
}

// start starts the program and reads the addresses of so many producers. The program ends with its standard input.
func start(t *testing.T, cmd *exec.Cmd, count int) map[string][2]string {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	addresses := map[string][2]string{}
	for lines := bufio.NewScanner(out); len(addresses) < count && lines.Scan(); {
		var bug, first, second string
		if _, err := fmt.Sscan(lines.Text(), &bug, &first, &second); err != nil {
			t.Fatal(err)
		}
		addresses[bug] = [2]string{"127.0.0.1:" + first, "127.0.0.1:" + second}
	}
	if len(addresses) < count {
		t.Fatalf("only %d of %d producers serve", len(addresses), count)
	}
	return addresses
}

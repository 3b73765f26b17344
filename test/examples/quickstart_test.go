package examples

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/msghandler/msghandler/test/servers"
)

// The quick start has fixed ports, so its session has a network of its own. Clients order; meanwhile the coordinator,
// the consumer and the service are killed twice each.
func TestQuickStartSurvivesKills(t *testing.T) {
	t.Parallel()
	const each = 20
	script, err := filepath.Abs(filepath.Join("testdata", "quickstart.sh"))
	if err != nil {
		t.Fatal(err)
	}
	servers.Tool(t, "ip")
	isolated := []string{"--net", "--pid", "--fork", "--kill-child", "--mount-proc"}
	if os.Getuid() != 0 {
		isolated = append(isolated, "--map-root-user")
	}
	cmd := exec.CommandContext(t.Context(), servers.Tool(t, "unshare"),
		append(isolated, "bash", script, fmt.Sprint(each))...)
	cmd.Dir = t.TempDir()
	cmd.Env = []string{"PATH=" + binaries + ":" + os.Getenv("PATH"), "HOME=" + cmd.Dir}
	out, err := cmd.Output()
	want := fmt.Sprintf("orders %d, shipments %d: 0 not shipped, 0 shipped without an order, 0 shipped twice\n",
		3*each, 3*each)
	if err != nil || string(out) != want {
		t.Errorf("the books say %s(%v), want %s", out, err, want)
		for _, name := range []string{"serve", "shipping", "shop", "dev"} {
			output, _ := os.ReadFile(filepath.Join(cmd.Dir, name+".log"))
			t.Logf("the end of the output of %s:\n%s", name, output[max(0, len(output)-2000):])
		}
	}
}

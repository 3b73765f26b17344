package cli_test

import (
	"strings"
	"testing"
)

// The rates are those of docs/evidence/performance.md, and the figures what was measured there, by hand.
func TestSizeComputesNeeds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args string
		want []string
	}{
		{"--rate=1000", []string{
			"maxmemory 6.7 GB 5.9 GB of messages wait, 131 MB", "CPUs 0.2 one server", "coordinators 2 ",
		}},
		{"--rate=10000 --outage=1m", []string{
			"maxmemory of each master 630 MB 981 MB of messages wait, 1.4 GB", "a Cluster of 4 masters", "coordinators 2 ",
			"queues 1 ",
		}},
		{"--rate=100000 --outage=1m", []string{
			"a Cluster of 34 masters, or 16 servers", "coordinators 10 ", "CPUs 12.0 with", "queues 8 ",
		}},
		{"--rate=1000000 --outage=1m", []string{
			"98.1 GB of messages wait", "335 masters", "coordinators 100 ", "queues 78 ",
		}},
		{"--rate=4000 --single", []string{"a Cluster of 3 masters, or 2 servers"}},
		{"--rate=100000000 --outage=8784h --body=8MiB", []string{"maxmemory of each master 871092322.9 GB"}},
		{"--rate=1000 --single", []string{"CPUs 0.3 one server", "coordinators: CPUs 0.5 in all", "RabbitMQ: CPUs 0.2"}},
	} {
		got := run(nil, append([]string{"size"}, strings.Fields(c.args)...)...)
		text := strings.Join(strings.Fields(got.out), " ")
		for _, want := range c.want {
			if got.status != 0 || !strings.Contains(text, want) {
				t.Errorf("size %s prints %d:\n%s%s\nwithout %q", c.args, got.status, got.out, got.err, want)
			}
		}
	}
	for _, wrong := range []string{"--rate=0", "--body=9MiB", "--body=x", "--outage=-1s", "--retention=9000h"} {
		run(nil, "size", wrong).want(t, 2, "", "--")
	}
}

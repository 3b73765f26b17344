package compare

import (
	"bufio"
	"encoding/json"
	"io"
	"testing"
	"time"

	"github.com/msghandler/msghandler/test/compare/load"
	"github.com/msghandler/msghandler/test/compare/systems"
	"github.com/msghandler/msghandler/test/servers"
)

// A tiny round of each system: what is measured is delivered, once.
func TestEverySystemDelivers(t *testing.T) {
	w := &world{
		t: t, broker: servers.RabbitMQ(t).URL, redis: servers.Redis(t), database: servers.PostgreSQL(t),
	}
	w.open()
	for _, kind := range systems.All {
		t.Run(kind.Name, func(t *testing.T) {
			if err := kind.Setup(t.Context(), w.servers()); err != nil {
				t.Fatal(err)
			}
			stop := w.startCoordinator(kind)
			defer stop()
			before, _, _ := w.consumer.counts()
			report := w.tinyLoad(t, kind)
			if report.Committed != tinyOrders || report.Failed > 0 || report.Missing > 0 {
				t.Errorf("of %d orders %d were committed, %d failed, the first with %q, and %d messages are missing", tinyOrders,
					report.Committed, report.Failed, report.FirstError, report.Missing)
			}
			after, further, _ := w.consumer.counts()
			if after-before != tinyOrders || further > 0 {
				t.Errorf("%d messages arrived, and %d copies, want %d", after-before, further, tinyOrders)
			}
		})
	}
}

const tinyOrders = 50

// tinyLoad runs a load in this process.
func (w *world) tinyLoad(t *testing.T, kind systems.Kind) load.Report {
	t.Helper()
	config := w.load(kind)
	config.Callers, config.Orders, config.Settle = 10, tinyOrders, time.Minute
	numbers, input := io.Pipe()
	output, events := io.Pipe()
	w.consumer.feed(input)
	ended := make(chan error, 1)
	go func() { ended <- load.Run(t.Context(), config, numbers, events) }()
	var report load.Report
	for lines := bufio.NewScanner(output); lines.Scan(); {
		var event load.Event
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			t.Fatal(err)
		}
		if event.Stage == load.StageDone {
			report = *event.Report
			break
		}
	}
	w.consumer.feed(nil)
	_ = input.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	return report
}

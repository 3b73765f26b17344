package compare

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/procfs"

	"github.com/msghandler/msghandler/test/compare/load"
	"github.com/msghandler/msghandler/test/compare/systems"
)

// parts are the measured processes, in the order of the tables.
var parts = []string{"service", "coordinator", "Redis", "PostgreSQL", "RabbitMQ"}

// sample is what the processes have spent so far.
type sample struct {
	// cpu is in seconds, by part.
	cpu map[string]float64
	// wal is the position in PostgreSQL's log, in bytes.
	wal float64
}

func (w *world) sample(s *service) sample {
	pids := map[string]int{
		"service": s.pid(), "coordinator": w.coordinatorPid(), "Redis": w.redis.Pid(),
		"PostgreSQL": w.database.Server.Pid(), "RabbitMQ": w.rabbit.Pid(),
	}
	spent, err := familyTimes(pids)
	if err != nil {
		w.t.Fatal(err)
	}
	return sample{cpu: spent, wal: w.number(`SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::float8`)}
}

// familyTimes is the processor time of processes and their children, the ended ones included, by name. PostgreSQL has a
// process for each connection.
func familyTimes(pids map[string]int) (map[string]float64, error) {
	processes, err := procfs.AllProcs()
	if err != nil {
		return nil, err
	}
	spent := map[string]float64{}
	for _, process := range processes {
		stat, err := process.Stat()
		if err != nil {
			continue // it has just ended
		}
		for name, pid := range pids {
			switch pid {
			case 0:
			case stat.PID:
				const ticks = 100 // a second, on every Linux
				spent[name] += stat.CPUTime() + float64(stat.CUTime+stat.CSTime)/ticks
			case stat.PPID:
				spent[name] += stat.CPUTime()
			}
		}
	}
	return spent, nil
}

// figure is the result of one measurement.
type figure struct {
	report load.Report
	// cpu is microseconds a message, by part; wal bytes a message.
	cpu map[string]float64
	wal float64
}

func newFigure(report load.Report, before, after sample) figure {
	f := figure{report: report, cpu: map[string]float64{}}
	messages := float64(max(1, report.Arrived))
	for _, part := range parts {
		f.cpu[part] = (after.cpu[part] - before.cpu[part]) * 1e6 / messages
	}
	f.wal = (after.wal - before.wal) / messages
	return f
}

// sum is the processor time of a message in all parts.
func (f figure) sum() (sum float64) {
	for _, us := range f.cpu {
		sum += us
	}
	return sum
}

func (f figure) String() string {
	return fmt.Sprintf("%.0f messages/s, p50 %.0f ms, p99 %.0f ms, CPU %.0f us, WAL %.0f bytes", f.report.Rate,
		f.report.Arrival.P50, f.report.Arrival.P99, f.sum(), f.wal)
}

// saturation is the table of the closed loop.
func saturation(kinds []systems.Kind, full figures) string {
	rows := [][]string{{
		"at saturation", "messages/s", "lowest to highest", "to the first, round by round",
		"CPU µs/message: " + strings.Join(parts, ", "), "sum", "WAL bytes/message",
	}}
	rate := func(f figure) float64 { return f.report.Rate }
	first := full[kinds[0].Name]
	for _, kind := range kinds {
		all := full[kind.Name]
		rows = append(rows, []string{
			kind.Title, whole(median(all, rate)), spread(all, rate), fmt.Sprintf("%.2f", medianRatio(all, first)),
			costs(all), whole(median(all, figure.sum)), whole(median(all, func(f figure) float64 { return f.wal })),
		})
	}
	return markdown(rows)
}

// steadiness is the table of the fixed rate.
func steadiness(kinds []systems.Kind, steady figures, rate int) string {
	rows := [][]string{{
		fmt.Sprintf("at %d messages/s", rate), "order committed: p50", "p99", "message arrived: p50", "p99",
		"lowest to highest p99", "CPU µs/message: " + strings.Join(parts, ", "), "sum",
	}}
	for _, kind := range kinds {
		all := steady[kind.Name]
		p99 := func(f figure) float64 { return f.report.Arrival.P99 }
		rows = append(rows, []string{
			kind.Title,
			milliseconds(median(all, func(f figure) float64 { return f.report.Commit.P50 })),
			milliseconds(median(all, func(f figure) float64 { return f.report.Commit.P99 })),
			milliseconds(median(all, func(f figure) float64 { return f.report.Arrival.P50 })),
			milliseconds(median(all, p99)), spread(all, p99), costs(all), whole(median(all, figure.sum)),
		})
	}
	return markdown(rows)
}

func costs(all []figure) string {
	texts := make([]string, len(parts))
	for i, part := range parts {
		texts[i] = whole(median(all, func(f figure) float64 { return f.cpu[part] }))
	}
	return strings.Join(texts, ", ")
}

func whole(value float64) string { return fmt.Sprintf("%.0f", value) }

func milliseconds(ms float64) string { return fmt.Sprintf("%.1f ms", ms) }

func sorted(all []figure, of func(figure) float64) []float64 {
	values := make([]float64, len(all))
	for i, f := range all {
		values[i] = of(f)
	}
	slices.Sort(values)
	return values
}

func median(all []figure, of func(figure) float64) float64 {
	values := sorted(all, of)
	if len(values) == 0 {
		return 0
	}
	return values[len(values)/2]
}

// medianRatio is the median of the ratios of two systems' throughputs in the same rounds. What else the machine does
// changes slowly, and so touches both.
func medianRatio(of, to []figure) float64 {
	ratios := make([]float64, len(of))
	for i := range of {
		ratios[i] = of[i].report.Rate / to[i].report.Rate
	}
	slices.Sort(ratios)
	return ratios[len(ratios)/2]
}

func spread(all []figure, of func(figure) float64) string {
	values := sorted(all, of)
	if len(values) == 0 {
		return ""
	}
	return whole(values[0]) + " to " + whole(values[len(values)-1])
}

func markdown(rows [][]string) string {
	var b strings.Builder
	for i, row := range rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			b.WriteString("|" + strings.Repeat("---|", len(row)) + "\n")
		}
	}
	return b.String()
}

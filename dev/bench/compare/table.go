package compare

import (
	"fmt"
	"strings"
)

// Table is the rows for people, the header first.
func Table(rows []Row) [][]string {
	table := [][]string{{
		"WHAT", "MESSAGES/S", "RATIO", "SUBMIT TO ACK P50, P99", "HALF TO ACK P50, P99",
		"CPU µs/MESSAGE: " + strings.Join(Processes, ", "),
	}}
	for _, r := range rows {
		ratio := ""
		if r.Of != "" {
			ratio = fmt.Sprintf("%.2f (CPU: %.2f) of %s", r.Ratio, r.CPURatio, r.Of)
		}
		table = append(table, []string{
			r.Name, fmt.Sprintf("%.0f", r.Rate), ratio, r.SubmitToAck.String(), r.HalfToAck.String(), costs(r.CPU),
		})
	}
	return table
}

// String is for people; nothing where nothing was timed.
func (q Quantiles) String() string {
	if q.P50 == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f ms, %.1f ms", q.P50, q.P99)
}

func costs(cpu map[string]float64) string {
	parts := make([]string, len(Processes))
	for i, name := range Processes {
		parts[i] = "-"
		if us, known := cpu[name]; known {
			parts[i] = fmt.Sprintf("%.0f", us)
		}
	}
	return strings.Join(parts, ", ")
}

package compare

import (
	"context"
	"math"
	"strings"
	"testing"
)

func TestRatiosCompareTheSameRound(t *testing.T) {
	t.Parallel()
	none := func(context.Context) (figure, error) { return figure{}, nil }
	bare, whole := measurement{"bare", "", none}, measurement{"coordinator", "bare", none}
	// The machine was slow in the second round and busy with other work in the third; the ratio is one half anyway.
	figures := map[string][]figure{
		"bare": {
			{rate: 1000, cpu: map[string]float64{Redis: 10, RabbitMQ: 40}},
			{rate: 100, cpu: map[string]float64{Redis: 12, RabbitMQ: 48}},
			{rate: 1000, cpu: map[string]float64{Redis: 10, RabbitMQ: 40}},
		},
		"coordinator": {
			{rate: 500, cpu: map[string]float64{Redis: 80, RabbitMQ: 45}},
			{rate: 50, cpu: map[string]float64{Redis: 96, RabbitMQ: 54}},
			{rate: 10, cpu: map[string]float64{Redis: 80, RabbitMQ: 45}},
		},
	}
	row := rowOf(whole, figures)
	if row.Ratio != 0.5 || math.Abs(row.CPURatio-0.4) > 1e-9 || row.Rate != 50 || row.CPU[Redis] != 80 {
		t.Errorf("got %+v", row)
	}
	if row := rowOf(bare, figures); row.Ratio != 0 || row.Of != "" {
		t.Errorf("what is compared with nothing has a ratio: %+v", row)
	}
	table := Table([]Row{row})
	if len(table) != 2 || !strings.Contains(strings.Join(table[1], "|"), "0.50 (CPU: 0.40) of bare") {
		t.Errorf("got %q", table)
	}
}

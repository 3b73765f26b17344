// Package compare measures coordinators next to the limits of Redis, RabbitMQ and gRPC on the same machine, in the same
// run.
//
// The rounds of all measurements are interleaved and medians are shown, so that a noisy machine disturbs all
// measurements alike. The ratios count, each of two consecutive measurements in the same round.
package compare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/msghandler/msghandler/dev/bench"
	"github.com/msghandler/msghandler/dev/bench/bare"
	"github.com/msghandler/msghandler/dev/bench/usage"
)

// The groups of processes whose costs are reported.
const (
	Coordinator = "coordinator"
	Redis       = "Redis"
	RabbitMQ    = "RabbitMQ"
	Producer    = "producer"
)

// Processes are the groups in the order of the table.
var Processes = []string{Coordinator, Redis, RabbitMQ, Producer}

// Config describes a comparison.
type Config struct {
	// Load is the load on the coordinators. Its Mode, Rate, Silent and Rollback are ignored: both modes are measured at
	// full speed, with messages that commit and are submitted.
	Load bench.Config
	// Executable is msghandler-bench, which also runs the bare reference.
	Executable string
	// Rounds is how often each measurement runs. Default 3.
	Rounds int
	// Progress is called before each measurement. May be nil.
	Progress func(what string, round int)
}

// Row is the result of a measurement.
type Row struct {
	Name string `json:"name"`
	// Rate is the median number of messages a second, Rates the number of each round.
	Rate  float64   `json:"messages_per_second"`
	Rates []float64 `json:"rounds"`
	// Of names the measurement of the comparison, and Ratio is the median of the rounds' ratios of messages a second.
	// CPURatio compares messages for the same processor time of all processes together, which depends less on other load.
	Of       string  `json:"of,omitempty"`
	Ratio    float64 `json:"ratio,omitempty"`
	CPURatio float64 `json:"cpu_ratio,omitempty"`
	// SubmitToAck and HalfToAck are medians in milliseconds.
	SubmitToAck Quantiles `json:"submit_to_ack"`
	HalfToAck   Quantiles `json:"half_to_ack"`
	// CPU is microseconds for each message.
	CPU map[string]float64 `json:"cpu_us_per_message"`
}

// Quantiles are medians of each round's own; zero where nothing was timed.
type Quantiles struct {
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
}

// measurement is repeated in every round.
type measurement struct {
	name, of string
	run      func(ctx context.Context) (figure, error)
}

// figure is the result of one round.
type figure struct {
	rate   float64
	submit bench.Latency
	half   bench.Latency
	cpu    map[string]float64
	// ratio and cpuRatio compare with the other measurement in the same round.
	ratio, cpuRatio float64
}

// comparison has the parts and references of a comparison.
type comparison struct {
	Config
	alone *bare.Alone
	// chain does all the bare work behind gRPC, calls only the calls.
	chain, calls *Reference
}

// Run runs all measurements, round by round.
func Run(ctx context.Context, config Config) (rows []Row, err error) {
	config.Rounds = cmp.Or(config.Rounds, 3)
	config.Load.Rate, config.Load.Silent, config.Load.Rollback, config.Load.ConsumeAfter = 0, 0, 0, true
	if config.Progress == nil {
		config.Progress = func(string, int) {}
	}
	c := &comparison{Config: config}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := c.open(ctx); err != nil {
		return nil, err
	}
	all := c.measurements()
	figures := map[string][]figure{}
	for round := range config.Rounds {
		for _, m := range all {
			config.Progress(m.name, round+1)
			f, err := m.run(ctx)
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", m.name, err)
			}
			figures[m.name] = append(figures[m.name], f)
		}
	}
	for _, m := range all {
		rows = append(rows, rowOf(m, figures))
	}
	return rows, nil
}

func (c *comparison) open(ctx context.Context) error {
	name := "msghandler-bench-bare"
	parts := bare.Config{RedisURL: c.Load.RedisURL, AMQPURL: c.Load.AMQPURL, Prefix: name}
	var err error
	if c.alone, err = bare.NewAlone(parts, cmp.Or(c.Load.Body, 1024), c.Load.Classic); err != nil {
		return err
	}
	if c.chain, err = c.startReference(ctx); err != nil {
		return err
	}
	c.calls, err = c.startReference(ctx, ReferenceCalls)
	return err
}

func (c *comparison) startReference(ctx context.Context, flags ...string) (*Reference, error) {
	return StartReference(ctx, c.Executable, c.Load.RedisURL, c.Load.AMQPURL, flags...)
}

func (c *comparison) close() (err error) {
	for _, r := range []*Reference{c.chain, c.calls} {
		if r != nil {
			err = errors.Join(err, r.Stop())
		}
	}
	if c.alone != nil {
		err = errors.Join(err, c.alone.Close())
	}
	return err
}

// The names of the measurements.
const (
	redisAlone     = "Redis scripts alone"
	publishesAlone = "confirmed publishes alone"
	chainAlone     = "Redis and RabbitMQ chained"
	callsOf        = "the calls alone, "
	bareOf         = "bare chain behind gRPC, "
	coordinatorOf  = "coordinator, "
)

func (c *comparison) measurements() []measurement {
	all := []measurement{
		{redisAlone, "", c.measureAlone(c.alone.Redis)},
		{publishesAlone, "", c.measureAlone(c.alone.Publishes)},
		{chainAlone, publishesAlone, c.measureAlone(c.alone.Chain)},
	}
	for _, mode := range []bench.Mode{bench.Gathered, bench.Unary} {
		m := string(mode)
		all = append(all,
			measurement{callsOf + m, "", c.measureLoad(mode, c.calls)},
			measurement{bareOf + m, callsOf + m, c.measureLoad(mode, c.chain)},
			measurement{coordinatorOf + m, bareOf + m, c.measureLoad(mode, nil)})
	}
	return all
}

// measureAlone measures a part in this process, whose costs count as the coordinator's.
func (c *comparison) measureAlone(
	part func(context.Context, time.Duration) (bare.Count, error),
) func(context.Context) (figure, error) {
	return func(ctx context.Context) (figure, error) {
		processes := c.processes(nil)
		processes[Coordinator] = processes[Producer]
		delete(processes, Producer)
		before := processes.Sample()
		counted, err := part(ctx, c.Load.Duration)
		f := figure{rate: float64(counted.Messages) / counted.Took.Seconds(), cpu: map[string]float64{}}
		for name, end := range processes.Sample() {
			f.cpu[name] = float64((end.CPU - before[name].CPU).Microseconds()) / float64(max(1, counted.Messages))
		}
		return f, err
	}
}

// measureLoad puts the load on a reference, or on the coordinators where r is nil.
func (c *comparison) measureLoad(mode bench.Mode, r *Reference) func(context.Context) (figure, error) {
	return func(ctx context.Context) (figure, error) {
		load := c.Load
		load.Mode, load.RedisURL, load.Processes = mode, "", c.processes(r)
		load.Unpublished = r != nil && r == c.calls
		if r != nil {
			load.Coordinators, load.TLS = []string{r.Address}, nil
		}
		report, err := bench.Run(ctx, load)
		if err == nil && ctx.Err() == nil && (report.Failed > 0 || !report.Balance.Even() && !load.Unpublished) {
			err = fmt.Errorf("%d failed, and the balance is %+v", report.Failed, report.Balance)
		}
		f := figure{rate: report.Rate, cpu: report.CPU}
		if report.SubmitToAck != nil {
			f.submit, f.half = *report.SubmitToAck, *report.HalfToAck
		}
		return f, err
	}
}

// processes are the processes whose costs are reported; a reference counts as the coordinator.
func (c *comparison) processes(r *Reference) usage.Processes {
	processes := usage.Processes{}
	for name, pids := range c.Load.Processes {
		processes[name] = pids
	}
	if r != nil {
		processes[Coordinator] = []int{r.PID}
	}
	return processes
}

// total is the processor time of a message in all processes.
func (f figure) total() (sum float64) {
	for _, us := range f.cpu {
		sum += us
	}
	return sum
}

func rowOf(m measurement, figures map[string][]figure) Row {
	mine := figures[m.name]
	row := Row{Name: m.name, Of: m.of, CPU: map[string]float64{}}
	for i, f := range mine {
		row.Rates = append(row.Rates, f.rate)
		for name := range f.cpu {
			row.CPU[name] = Median(mine, func(f figure) float64 { return f.cpu[name] })
		}
		if m.of != "" {
			other := figures[m.of][i]
			mine[i].ratio, mine[i].cpuRatio = f.rate/other.rate, other.total()/f.total()
		}
	}
	row.Rate = Median(mine, func(f figure) float64 { return f.rate })
	row.Ratio = Median(mine, func(f figure) float64 { return f.ratio })
	row.CPURatio = Median(mine, func(f figure) float64 { return f.cpuRatio })
	row.SubmitToAck = quantiles(mine, func(f figure) bench.Latency { return f.submit })
	row.HalfToAck = quantiles(mine, func(f figure) bench.Latency { return f.half })
	return row
}

func quantiles(figures []figure, of func(figure) bench.Latency) Quantiles {
	return Quantiles{
		P50: Median(figures, func(f figure) float64 { return of(f).P50 }),
		P99: Median(figures, func(f figure) float64 { return of(f).P99 }),
	}
}

// Median is the median of a value of the figures; of an even number, the higher of the two middle values.
func Median[T any](figures []T, of func(T) float64) float64 {
	values := make([]float64, len(figures))
	for i, f := range figures {
		values[i] = of(f)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

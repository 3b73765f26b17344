// Package benchmark is the command line of msghandler-bench: a load on running coordinators.
package benchmark

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/msghandler/msghandler/dev/bench"
	"github.com/msghandler/msghandler/dev/bench/usage"
	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/internal/ground/address"
)

// command is what can be typed.
type command struct {
	commandline.Common

	Server   []string      `help:"The coordinators' addresses, separated by commas (also: MSGHANDLER_SERVER; default: grpc.addr)." placeholder:"HOST:PORT"`
	Mode     string        `default:"gathered" enum:"gathered,unary" help:"gathered: the batch RPCs, as the SDK gathers them; unary: one message a call."`
	Callers  int           `help:"How many messages are under way at once, each begun when another has ended; default: 2000, or 256 with --mode=unary." placeholder:"N"`
	Rate     int           `help:"How many messages a second become due, however long earlier messages take; times are from when a message was due." placeholder:"N"`
	For      time.Duration `default:"10s" help:"How long is measured."`
	Warmup   time.Duration `help:"How long the load runs before the measurement; default: 2s, but at most a fifth of --for." placeholder:"DURATION"`
	Producer int           `name:"producers" default:"1" help:"How many producers."`
	Body     int           `default:"1024" help:"How many bytes a body has."`
	Silent   float64       `default:"0" help:"The share of messages that commit and say nothing, from 0 to 1."`
	Rollback float64       `default:"0" help:"The share of messages that roll back, from 0 to 1."`
	After    time.Duration `name:"confirm-after" default:"1s" help:"After how long a coordinator asks about a silent message."`
	Queue    string        `default:"quorum" enum:"quorum,classic" help:"The kind of queue that the load makes."`
	Queues   int           `default:"1" help:"How many queues; the messages go to them in turn, and their leaders are spread over the nodes of a cluster."`
	Consume  string        `default:"during" enum:"during,after" help:"Whether the queues are emptied during the load, or after the load and at no cost to the load."`
	Listen   string        `default:"127.0.0.1:0" help:"Where the producers serve their callbacks." placeholder:"HOST:PORT"`
	Target   string        `help:"Where coordinators reach --listen; default: the address that --listen got." placeholder:"HOST:PORT"`
	Output   string        `short:"o" default:"table" enum:"table,json,yaml" help:"table for people, json or yaml for programs."`
	commandline.TLSFlags
	commandline.TokenFlags

	kong.Plugins
	flags *commandline.ConfigFlags
}

const description = "Put a load on running coordinators: throughput, times, costs, " +
	"and the balance of what was delivered."

// Program is msghandler-bench.
var Program = commandline.Program{Name: "msghandler-bench", Description: description, Grammar: func() any {
	flags := commandline.NewConfigFlags(nil)
	return &command{flags: flags, Plugins: flags.Plugins()}
}}

// Run runs the arguments of a process and returns the exit status.
func Run(ctx context.Context, process commandline.Process) int { return Program.Run(ctx, process) }

// Help says what --help says below the usage.
func (c *command) Help() string {
	return `The load needs running coordinators and their configuration: amqp.url, where msghandler-bench makes queues
of its own. With --rate the load writes so many messages a second during --warmup and --for, and one message for
each producer before. Producers, queues and ids begin with msghandler-bench-. Queues and messages are removed at the
end and on an interrupt; receipts of the messages stay in Redis for done.retention. callbacks.allow must allow the
coordinators to call msghandler-bench back; these calls are not encrypted. Without --rate the load takes all that
coordinators, Redis and RabbitMQ can give, and slows down others who use them. Processor time and memory are those
of processes that listen on this machine's loopback. The exit status is 1 when a message was lost, or a message
arrived that had rolled back.`
}

// errUneven is the end of a load whose books do not balance.
var errUneven = errors.New("the balance is not even: committed and delivered messages differ")

// Run makes the load and prints its report.
func (c *command) Run(ctx context.Context, s *commandline.Session) error {
	settings, err := s.Load(c.flags.Given())
	if err != nil {
		return commandline.UsageError{Err: err}
	}
	ctx, stop := commandline.Interruptible(ctx)
	defer stop()
	load := c.config(s, settings)
	load.TLS, err = c.TLSFlags.Config(s)
	err = errors.Join(err, c.check())
	for _, server := range load.Coordinators {
		var wrong error
		load.Token, wrong = c.Token(s, server, load.TLS != nil)
		err = errors.Join(err, wrong, commandline.CheckCoordinator(server))
	}
	if err = errors.Join(err, load.Check()); err != nil {
		return commandline.UsageError{Err: err}
	}
	c.warn(s, load)
	progress := s.Progress()
	load.Progress = func(p bench.Progress) {
		progress.Update("%s: %d done, %.0f a second, %d delivered, %d failed", p.Stage, p.Done, p.Rate, p.Delivered, p.Failed)
	}
	report, err := bench.Run(ctx, load)
	progress.End()
	if report.Settings.Name != "" {
		err = errors.Join(err, s.PrintDocument(c.Output, report, func() [][]string { return reportRows(report) }))
	}
	if err == nil && !report.Balance.Even() {
		err = errUneven
	}
	return err
}

// check refuses wrong addresses, and zeros that a load would take for its defaults.
func (c *command) check() error {
	for _, flag := range []struct {
		name string
		zero bool
	}{
		{"producers", c.Producer == 0},
		{"body", c.Body == 0},
		{"queues", c.Queues == 0},
		{"for", c.For == 0},
		{"confirm-after", c.After == 0},
	} {
		if flag.zero {
			return fmt.Errorf("--%s: more than none", flag.name)
		}
	}
	for name, addr := range map[string]string{"listen": c.Listen, "target": cmp.Or(c.Target, c.Listen)} {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return fmt.Errorf("--%s=%s: write host:port", name, addr)
		}
	}
	return nil
}

// config returns the load that the flags ask for.
func (c *command) config(s *commandline.Session, settings config.Config) bench.Config {
	servers := c.Server
	if len(servers) == 0 {
		servers = strings.Split(cmp.Or(s.Variable("MSGHANDLER_SERVER"), settings.GRPC.Addr), ",")
	}
	return bench.Config{
		Coordinators: servers, AMQPURL: settings.AMQP.URLs[0], Mode: bench.Mode(c.Mode),
		Producers: c.Producer, Callers: c.Callers, Rate: c.Rate, Body: c.Body, Silent: c.Silent, Rollback: c.Rollback,
		ConfirmAfter: c.After, Warmup: c.warmup(), Duration: c.For, Queues: c.Queues, Classic: c.Queue == "classic",
		ConsumeAfter: c.Consume == "after", Listen: c.Listen, Target: c.Target,
		Processes: usage.Find(bench.Producer, map[string][]string{
			bench.Coordinator: servers,
			bench.Redis:       redisHosts(settings.Redis.URL),
			bench.RabbitMQ:    brokerHosts(settings.AMQP.URLs),
		}),
	}
}

// warn announces how much is about to be written, and where.
func (c *command) warn(s *commandline.Session, load bench.Config) {
	during := load.Warmup + load.Duration
	amount := fmt.Sprintf("as many messages as they take in %s", during)
	if load.Rate > 0 {
		messages := int(math.Round(float64(load.Rate) * during.Seconds()))
		amount = fmt.Sprintf("about %d messages (%d a second for %s)", messages, load.Rate, during)
	}
	fmt.Fprintf(s.Err, "msghandler-bench writes %s, to the Redis of the coordinators at %s and to queues "+
		"msghandler-bench-* on RabbitMQ at %s; an interrupt ends the load, and removes its queues and messages\n",
		amount, strings.Join(load.Coordinators, ", "), strings.Join(brokerHosts([]string{load.AMQPURL}), ", "))
}

// The default of --warmup is a share of a short load, and longestWarmup at most.
const longestWarmup, shareOfWarmup = 2 * time.Second, 5

func (c *command) warmup() time.Duration {
	return cmp.Or(c.Warmup, max(min(longestWarmup, c.For/shareOfWarmup), time.Nanosecond))
}

// redisHosts are the addresses in a Redis URL.
func redisHosts(text string) []string {
	at, _ := address.ParseRedis(text) // the configuration has checked the URL, and an embedded Redis has no address
	return at.Hosts
}

// brokerHosts are the addresses in the URLs of brokers.
func brokerHosts(urls []string) (hosts []string) {
	for _, text := range urls {
		if at, err := address.ParseAMQP(text); err == nil {
			hosts = append(hosts, at.Host)
		}
	}
	return hosts
}

// reportRows are a report for people.
func reportRows(r bench.Report) [][]string {
	rows := [][]string{
		{"messages", fmt.Sprintf("%d in %.1f s, %d failed, %d never began", r.Messages, r.Seconds, r.Failed, r.Unbegun)},
		{"throughput", fmt.Sprintf("%.0f messages a second%s", r.Rate, counting(r.Settings))},
	}
	if r.Failed+r.Unbegun > 0 {
		rows = append(rows, []string{"", "failed and unbegun messages have no time: the times are those of the others"})
	}
	for _, l := range []struct {
		name string
		of   *bench.Latency
	}{
		{"half message to acknowledgement", r.HalfToAck},
		{"Submit to acknowledgement", r.SubmitToAck},
		{"Submit to delivery", r.SubmitToDelivery},
	} {
		if l.of != nil {
			times := fmt.Sprintf("p50 %.1f ms, p90 %.1f ms, p99 %.1f ms, p99.9 %.1f ms, at most %.1f ms",
				l.of.P50, l.of.P90, l.of.P99, l.of.P999, l.of.Max)
			rows = append(rows, []string{l.name, times})
		}
	}
	for _, name := range bench.Processes {
		if us, known := r.CPU[name]; known {
			rows = append(rows, []string{name, fmt.Sprintf("%.0f µs of CPU a message, %d MiB, at most %d MiB", us,
				r.Memory[name]>>20, r.MostMemory[name]>>20)})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Deliveries)) {
		rows = append(rows, []string{name, fmt.Sprintf("%d delivered", r.Deliveries[name])})
	}
	b := r.Balance
	return append(rows,
		[]string{"sent", fmt.Sprintf("%d committed (%d in silence), %d rolled back", b.Committed, b.Silent, b.RolledBack)},
		[]string{"delivered", fmt.Sprintf("%d, and %d copies; lost %d, rolled back and yet delivered %d, of others %d",
			b.Delivered, b.Copies, b.Lost, b.Ghosts, b.Alien)})
}

// counting explains which messages count as done besides those that the broker has acknowledged.
func counting(load bench.Settings) string {
	if load.Silent+load.Rollback == 0 {
		return ""
	}
	return ", of which silent ones count when they have committed, and others when they have rolled back"
}

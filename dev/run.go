package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"

	"github.com/alecthomas/kong"

	"github.com/msghandler/msghandler/dev/embedded"
	"github.com/msghandler/msghandler/dev/embedded/amqpbroker"
	"github.com/msghandler/msghandler/dev/embedded/natsserver"
	"github.com/msghandler/msghandler/internal/app"
	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/internal/ground/build"
)

// runCommand runs everything embedded, for people who write and test a service of their own.
type runCommand struct {
	GRPCPort    int               `name:"grpc-port" default:"9090" placeholder:"PORT" help:"The coordinator's port, for producers and for msghandler commands."`
	ConsolePort int               `default:"9091" placeholder:"PORT" help:"The console's port."`
	AMQPPort    int               `name:"amqp-port" default:"5672" placeholder:"PORT" help:"The embedded AMQP broker's port, for consumers."`
	RedisPort   int               `default:"6379" placeholder:"PORT" help:"The embedded Redis's port, for redis-cli."`
	NATSPort    int               `name:"nats-port" placeholder:"PORT" help:"Run an embedded NATS server with JetStream at this port, as the broker nats. Default: none runs."`
	Queue       []string          `sep:"none" placeholder:"NAME" help:"Make this durable queue in the AMQP broker, as a consumer would. May be repeated."`
	Set         map[string]string `help:"Set any key, also of single producers: --set producers.orders.target=127.0.0.1:9000" mapsep:"none" placeholder:"KEY=VALUE"`

	kong.Plugins
	flags *commandline.ConfigFlags
}

func newRunCommand() runCommand {
	var ours []string
	for _, part := range (&runCommand{}).parts() {
		ours = append(ours, part.key)
	}
	flags := commandline.NewConfigFlags(func(key string) bool { return !slices.Contains(ours, key) })
	return runCommand{flags: flags, Plugins: flags.Plugins()}
}

// Help returns the text below the usage in --help.
func (c *runCommand) Help() string {
	return `The coordinator, its console, a Redis and an AMQP broker run in this process and listen on 127.0.0.1. Nothing
is durable: every message is gone when msghandler-dev ends. The ports decide grpc.addr, http.addr, redis.url and
amqp.url; every other key counts as for msghandler serve, from flags, environment and file. With --nats-port there is a
NATS server too, which is brokers.nats.url: messages whose broker is nats go to the streams that you make there. The
AMQP broker has no queue until a consumer or --queue makes one: a message without a queue is returned, as by RabbitMQ.
Without callbacks.allow the coordinator calls producers back on this machine: 127.0.0.1, ::1 and localhost, at any
port. In the AMQP broker x-expires, x-max-length, x-max-length-bytes, x-overflow, priorities, and alternate, internal
and auto-delete exchanges have no effect.`
}

// host is the only address that parts listen at: embedded servers ask for no password.
const host = "127.0.0.1"

// The values of callbacks.allow and callbacks.networks where callbacks.allow is not set.
const (
	defaultAllow    = "127.0.0.1:*,[::1]:*,localhost:*"
	defaultNetworks = "127.0.0.0/8,::1/128"
)

// listeningPart is a part that listens.
type listeningPart struct {
	// name is for people; key is the key of the configuration that run sets, and flag the flag that replaces that key.
	name, key, flag string
	port            int
	// format makes the key's value from an address.
	format string
	// use says who needs the address.
	use string
}

func (p listeningPart) addr() string { return net.JoinHostPort(host, strconv.Itoa(p.port)) }

func (p listeningPart) value() string { return fmt.Sprintf(p.format, p.addr()) }

func (c *runCommand) parts() []listeningPart {
	parts := []listeningPart{
		{"coordinator", "grpc.addr", "grpc-port", c.GRPCPort, "%s", "producers (producer.Config.Coordinator) and commands"},
		{"console", "http.addr", "console-port", c.ConsolePort, "%s", "a browser; /metrics, /readyz"},
		{"AMQP broker", "amqp.url", "amqp-port", c.AMQPPort, "amqp://guest:guest@%s/", "consumers (the URL of their Config)"},
		{"Redis", "redis.url", "redis-port", c.RedisPort, "redis://%s/0", fmt.Sprintf("redis-cli -p %d", c.RedisPort)},
	}
	if c.NATSPort != 0 {
		parts = append(parts, listeningPart{
			"NATS server", "brokers.nats.url", "nats-port", c.NATSPort, "nats://%s",
			"consumers (the URL of their Config); the broker nats of messages",
		})
	}
	return parts
}

// Run serves until a signal comes or a part fails.
func (c *runCommand) Run(ctx context.Context, s *commandline.Session) error {
	current, err := c.load(s)
	if err != nil {
		return commandline.UsageError{Err: err}
	}
	if err := c.checkPortsFree(ctx); err != nil {
		return err
	}
	logger := commandline.NewLogger(s.Err, current.Config.Log)
	return commandline.UntilSignalled(ctx, logger, commandline.AlwaysStop, func(ctx context.Context) error {
		return c.serve(ctx, s.Out, current, logger)
	})
}

// load reads the configuration, with the keys that run sets.
func (c *runCommand) load(s *commandline.Session) (*config.Current, error) {
	flags := c.flags.Given()
	maps.Copy(flags, c.Set)
	if err := errors.Join(c.checkKeys(flags), c.checkPorts()); err != nil {
		return nil, err
	}
	for _, part := range c.parts() {
		flags[part.key] = part.value()
	}
	current, err := config.Open(s.Sources(flags))
	if err != nil || len(current.Config.Callbacks.Allow) > 0 {
		return current, err
	}
	flags["callbacks.allow"] = defaultAllow
	if len(current.Config.Callbacks.Networks) == 0 {
		flags["callbacks.networks"] = defaultNetworks
	}
	return config.Open(s.Sources(flags))
}

// checkKeys refuses the keys that run sets itself.
func (c *runCommand) checkKeys(flags map[string]string) (err error) {
	for _, part := range c.parts() {
		if _, given := flags[part.key]; given {
			err = errors.Join(err, fmt.Errorf("--%s: msghandler-dev runs the %s itself; change its port with --%s, or use "+
				"msghandler serve", part.key, part.name, part.flag))
		}
	}
	return err
}

// checkPorts refuses impossible ports, and a port that two parts would share.
func (c *runCommand) checkPorts() (err error) {
	flagOf := map[int]string{}
	for _, part := range c.parts() {
		if part.port < 1 || part.port > 65535 {
			err = errors.Join(err, fmt.Errorf("--%s=%d: a port is a number from 1 to 65535", part.flag, part.port))
		} else if other, taken := flagOf[part.port]; taken {
			err = errors.Join(err, fmt.Errorf("--%s and --%s are both %d: choose two ports", other, part.flag, part.port))
		}
		flagOf[part.port] = part.flag
	}
	return err
}

// checkPortsFree names every port that another program has, before any part starts.
func (c *runCommand) checkPortsFree(ctx context.Context) (err error) {
	for _, part := range c.parts() {
		listener, failure := (&net.ListenConfig{}).Listen(ctx, "tcp", part.addr())
		if failure != nil {
			err = errors.Join(err, fmt.Errorf("the %s cannot have port %d: %w; stop the program that listens there, or choose "+
				"another port with --%s", part.name, part.port, failure, part.flag))
			continue
		}
		err = errors.Join(err, listener.Close())
	}
	return err
}

// serve starts the embedded servers, and runs a coordinator on them until the context ends or a part fails.
func (c *runCommand) serve(
	ctx context.Context, out io.Writer, current *config.Current, logger *slog.Logger,
) (failed error) {
	redis, err := embedded.StartRedis(net.JoinHostPort(host, strconv.Itoa(c.RedisPort)))
	if err != nil {
		return err
	}
	defer redis.Close()
	broker := amqpbroker.New(amqpbroker.Config{Logger: logger})
	defer func() { failed = errors.Join(failed, broker.Close()) }()
	for _, name := range c.Queue {
		if err := broker.DeclareQueue(name); err != nil {
			return fmt.Errorf("--queue=%s: %w", name, err)
		}
	}
	if _, err := broker.Listen(net.JoinHostPort(host, strconv.Itoa(c.AMQPPort))); err != nil {
		return err
	}
	if c.NATSPort != 0 {
		nats, err := natsserver.Start(net.JoinHostPort(host, strconv.Itoa(c.NATSPort)), logger)
		if err != nil {
			return err
		}
		defer func() { failed = errors.Join(failed, nats.Close()) }()
	}
	coordinator, err := app.New(ctx, current.Config, app.Deps{
		Version: build.Read().Version, Logger: logger, Configuration: current,
	})
	if err != nil {
		return err
	}
	var greeting sync.WaitGroup
	defer greeting.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	greeting.Go(func() {
		if commandline.WaitReady(ctx, coordinator.HTTPAddr()) == nil {
			_, _ = io.WriteString(out, c.banner(current.Config)) // a closed standard output needs no banner
		}
	})
	return coordinator.Run(ctx)
}

// banner names the parts and their addresses, says that nothing is durable, and names the next command.
func (c *runCommand) banner(settings config.Config) string {
	var b strings.Builder
	b.WriteString("\nmsghandler-dev: everything runs in this process, and only this machine reaches it.\n" +
		"NOTHING IS DURABLE: every message is gone when msghandler-dev ends.\n\n")
	table := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	for _, part := range c.parts() {
		value := part.value()
		if part.key == "http.addr" {
			value = "http://" + value + "/"
		}
		fmt.Fprintf(table, "  %s\t%s\tfor %s\n", part.name, value, part.use)
	}
	_ = table.Flush() // a strings.Builder takes everything
	server, servers := "", ""
	if c.GRPCPort != 9090 {
		server = " --server=" + settings.GRPC.Addr
	}
	if c.RedisPort != 6379 || c.AMQPPort != 5672 {
		servers = " --redis.url=" + settings.Redis.URL + " --amqp.url=" + settings.AMQP.URLs[0]
	}
	fmt.Fprintf(&b, "\nProducers are called back at %s (callbacks.allow).\n", strings.Join(settings.Callbacks.Allow, ", "))
	fmt.Fprintf(&b, "Next, in another terminal: msghandler tail%s\n", server)
	fmt.Fprintf(&b, "Is all well?               msghandler doctor%s%s\nCtrl-C ends all of it.\n\n", server, servers)
	return b.String()
}

package bench

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/msghandler/msghandler/test/servers"
)

// coordinator is a coordinator that can be stopped, and started again at the same addresses.
type coordinator struct {
	s *setup
	// api, http and pprof are the coordinator's addresses.
	api, http, pprof string
	// environment holds further settings.
	environment []string
	// process is nil while the coordinator does not run.
	process *exec.Cmd
}

func newCoordinator(s *setup, environment []string) *coordinator {
	addresses := servers.Addresses(s.b, 3)
	c := &coordinator{s: s, api: addresses[0], http: addresses[1], pprof: addresses[2], environment: environment}
	s.b.Cleanup(func() {
		if c.process != nil {
			_ = c.process.Process.Kill()
			_ = c.process.Wait()
		}
	})
	return c
}

// start starts the coordinator, unless it runs.
func (c *coordinator) start() {
	if c.process != nil {
		return
	}
	process := exec.Command(c.s.binary, "serve")
	process.Env = append(os.Environ(),
		"MSGHANDLER_GRPC_ADDR="+c.api, "MSGHANDLER_HTTP_ADDR="+c.http, "PPROF_ADDR="+c.pprof,
		"MSGHANDLER_CALLBACKS_ALLOW=127.0.0.1:*", "MSGHANDLER_DONE_RETENTION=10s")
	process.Env = append(process.Env, c.environment...)
	process.Stderr = os.Stderr
	c.s.must(process.Start())
	c.process = process
}

// await waits until it is ready.
func (c *coordinator) await() {
	servers.Eventually(c.s.b, 30*time.Second, "the coordinator is ready", func() bool {
		_, err := fetch(c.console() + "/readyz")
		return err == nil
	})
}

// stop stops the coordinator as operators do, and waits for its end.
func (c *coordinator) stop() {
	if c.process == nil {
		return
	}
	c.s.must(c.process.Process.Signal(syscall.SIGTERM))
	err := c.process.Wait()
	c.process = nil
	c.s.must(err)
}

func (c *coordinator) console() string { return "http://" + c.http }

// run has the first n coordinators run, and no others.
func (s *setup) run(n int) {
	for _, c := range s.all[n:] {
		c.stop()
	}
	for _, c := range s.all[:n] {
		c.start()
	}
	for _, c := range s.all[:n] {
		c.await()
	}
}

// running are the running coordinators.
func (s *setup) running() (all []*coordinator) {
	for _, c := range s.all {
		if c.process != nil {
			all = append(all, c)
		}
	}
	return all
}

// addresses are where they serve the API.
func (s *setup) addresses() (all []string) {
	for _, c := range s.running() {
		all = append(all, c.api)
	}
	return all
}

// total sums up a metric of the running coordinators, in all series with these labels' values.
func (s *setup) total(of func(*dto.Metric) float64, name string, labels ...string) (sum float64) {
	for _, c := range s.running() {
		for _, m := range c.scrape()[name].GetMetric() {
			if hasAll(m, labels) {
				sum += of(m)
			}
		}
	}
	return sum
}

func hasAll(m *dto.Metric, labels []string) bool {
	for _, label := range labels {
		if !slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetValue() == label }) {
			return false
		}
	}
	return true
}

// The values of a metric: its counter, its number of observations, and their sum.
func counted(m *dto.Metric) float64  { return m.GetCounter().GetValue() }
func observed(m *dto.Metric) float64 { return float64(m.GetHistogram().GetSampleCount()) }
func summed(m *dto.Metric) float64   { return m.GetHistogram().GetSampleSum() }

func fetch(url string) (string, error) {
	answer, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, answer.Status)
	}
	return string(body), err
}

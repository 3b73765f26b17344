package drill

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/msghandler/msghandler/test/programs"
	"github.com/msghandler/msghandler/test/servers"
)

// row is what the drill has measured of an incident.
type row struct {
	incident incident
	// seen says for each signal when it came, after the cause.
	seen map[string]time.Duration
	// ended says when all signals had ended, after repairedAt.
	ended      time.Duration
	repairedAt time.Time
}

// signals are the ways to learn of an incident, by name. Each reports whether it tells now.
func (w *world) signals(i incident) map[string]func() bool {
	all := map[string]func() bool{
		"console": func() bool { return strings.Contains(w.overview(), i.console) },
		"doctor":  func() bool { return slices.Contains(w.doctor(), i.finding) },
	}
	for _, alert := range i.alerts {
		all[alert+" pending"] = func() bool { return w.alert(alert) != "" }
		all[alert+" firing"] = func() bool { return w.alert(alert) == "firing" }
	}
	if i.cause != "" {
		all["cause in the alert"] = func() bool { return w.alertNames(i) }
	}
	return all
}

// play breaks, measures, repairs, and waits until all signals have ended.
func (w *world) play(i incident, commands []string) row {
	if i.soon == 0 {
		i.soon, i.patience = soon, patience
	}
	w.t.Logf("INCIDENT %s", i.name)
	signals := w.signals(i)
	for name, tells := range signals {
		servers.Eventually(w.t, patience, name+" is quiet before "+i.name, func() bool { return !tells() })
	}
	if i.before != nil {
		i.before(w)
	}
	began := time.Now()
	i.breaks(w)
	stop := w.every(i.goesOn)
	r := row{incident: i, seen: w.await(signals, began, 2*i.soon)}
	for name := range signals {
		if at, seen := r.seen[name]; !seen || at > i.soon {
			w.t.Errorf("%s: %s came after %v (seen: %t), later than %v", i.name, name, at, seen, i.soon)
		}
	}
	w.t.Logf("reported after:\n%s", table([]row{r}))
	var words []string
	if i.words != nil {
		words = i.words(w)
	}
	w.repair(commands, words)
	r.repairedAt = time.Now()
	stop()
	if i.patience == loopPatience {
		return r // awaited in the end, while the other incidents run
	}
	w.awaitEnd(&r)
	return r
}

// awaitEnd waits until no signal of an incident tells any more.
func (w *world) awaitEnd(r *row) {
	defer w.every((*world).trade)()
	for name, tells := range w.signals(r.incident) {
		servers.Eventually(w.t, r.incident.patience, name+" ends after "+r.incident.name, func() bool { return !tells() })
	}
	r.ended = time.Since(r.repairedAt)
	w.t.Logf("%s: all signals have ended %s after the repair", r.incident.name, seconds(r.ended))
}

// every calls a function twice a second in the background until stop is called.
func (w *world) every(call func(*world)) (stop func()) {
	if call == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		ticker := time.NewTicker(500 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				call(w)
			}
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// await notes when each signal came.
func (w *world) await(signals map[string]func() bool, began time.Time, within time.Duration) map[string]time.Duration {
	ctx, cancel := context.WithDeadline(w.t.Context(), began.Add(within))
	defer cancel()
	seen := map[string]time.Duration{}
	var mu sync.Mutex
	var looking sync.WaitGroup
	for name, tells := range signals {
		looking.Go(func() {
			ticker := time.NewTicker(200 * time.Millisecond)
			defer ticker.Stop()
			for ctx.Err() == nil {
				if tells() {
					mu.Lock()
					defer mu.Unlock()
					seen[name] = time.Since(began)
					return
				}
				<-ticker.C
			}
		})
	}
	looking.Wait()
	return seen
}

// overview is the text of what is wrong now, on the first page of the first coordinator's console. Below this part the
// marks of the charts go on naming a problem that has ended.
func (w *world) overview() string {
	now, _, _ := strings.Cut(get("http://"+w.coordinators[0].http+"/"), "</section>")
	return html.UnescapeString(now)
}

func get(url string) string {
	client := http.Client{Timeout: 10 * time.Second}
	answer, err := client.Get(url)
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body) // half an answer tells nothing
	return string(body)
}

// doctor returns the names of the doctor's findings.
func (w *world) doctor() (names []string) {
	cmd := exec.Command(programs.Path("msghandler"), "doctor", "--output", "json")
	cmd.Env = append(w.settings(), w.coordinators[0].environment...)
	// A broker that is slow to confirm opens connections as ever: the delay is for the coordinators.
	cmd.Env = append(cmd.Env, "MSGHANDLER_SERVER="+w.coordinators[0].grpc, "MSGHANDLER_AMQP_URL="+w.rabbit.URL)
	out, _ := cmd.Output() // it fails when it finds trouble
	var findings []struct{ Name string }
	_ = json.Unmarshal(out, &findings) // without a document nothing is found
	for _, f := range findings {
		names = append(names, f.Name)
	}
	return names
}

// alert is an alert of Prometheus.
type alert struct {
	Labels, Annotations map[string]string
	State               string
}

// alerts are those that are pending or firing.
func (w *world) alerts() []alert {
	var answer struct{ Data struct{ Alerts []alert } }
	_ = json.Unmarshal([]byte(get("http://"+w.prometheus+"/api/v1/alerts")), &answer)
	return answer.Data.Alerts
}

// alert is the state of an alert: firing, pending, or empty.
func (w *world) alert(name string) (state string) {
	for _, alert := range w.alerts() {
		if alert.Labels["alertname"] == name && state != "firing" {
			state = alert.State
		}
	}
	return state
}

// alertNames says whether an alert of the incident names the finding that is the cause.
func (w *world) alertNames(i incident) bool {
	return slices.ContainsFunc(w.alerts(), func(a alert) bool {
		return slices.Contains(i.alerts, a.Labels["alertname"]) && strings.Contains(a.Annotations["description"], i.cause)
	})
}

// table is the result for a page.
func table(rows []row) string {
	var b strings.Builder
	b.WriteString("| incident | console | doctor | alert | pending | firing | signals ended |\n")
	b.WriteString("|---|---|---|---|---|---|---|\n")
	for _, r := range rows {
		name, console, doctor, ended := r.incident.name, r.at("console"), r.at("doctor"), seconds(r.ended)
		for _, alert := range r.incident.alerts {
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", name, console, doctor, alert, r.at(alert+" pending"),
				r.at(alert+" firing"), ended)
			name, console, doctor, ended = "", "", "", ""
		}
	}
	return b.String()
}

// at is when a signal came.
func (r row) at(signal string) string { return seconds(r.seen[signal]) }

func seconds(d time.Duration) string { return fmt.Sprintf("%.0f s", d.Seconds()) }

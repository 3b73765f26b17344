package pages

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/console/history"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/peerstats"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// overviewData is the data of the first page.
type overviewData struct {
	Problems  []problem
	Bad       bool
	States    []stateLine
	Charts    chartsData
	Producers []producerLine
	Exchanges []exchangeLine
	// ProducerSheet and ExchangeSheet are what the page shows of them.
	ProducerSheet sheet[producerLine]
	ExchangeSheet sheet[exchangeLine]
	Checks        []Checked
	Findings      []*adminv1.Finding
	// Held is how many messages have a lease, Coordinators who works and who is missing.
	Held         int64
	Coordinators sheet[coordinatorLine]
	// Summed is the number of coordinators whose counts are added up.
	Summed int
	// Refused is the number of refused calls in the latest bucket of the charts.
	Refused int64
}

// stateLine is a state in the table of states.
type stateLine struct {
	State    halfmsg.State
	Means    string
	Count    int64
	Known    bool
	Oldest   time.Time
	FirstDue time.Time
	Line     history.Line
	Tone     string
}

type producerLine struct {
	peerstats.Producer
	Down bool
}

type exchangeLine struct {
	peerstats.Exchange
	Down bool
}

// coordinatorLine is a coordinator that runs or is missing, and a former one that still has leases.
type coordinatorLine struct {
	Instance, Version, State string
	Self                     bool
	StartedAt, SeenAt        time.Time
	Restarts                 int64
	Leases                   int
	LeaseUntil               time.Time
}

// coordinatorLines joins the coordinators with the leases they hold.
func coordinatorLines(all []*adminv1.Coordinator, owners halfmsg.Owners) (lines []coordinatorLine) {
	holders := map[string]halfmsg.Owner{}
	for _, owner := range owners.All {
		holders[owner.Instance] = owner
	}
	for _, c := range all {
		held := holders[c.GetInstance()]
		stopped := c.GetState() == adminv1.CoordinatorState_COORDINATOR_STATE_STOPPED
		if stopped && held.Leases == 0 {
			continue
		}
		delete(holders, c.GetInstance())
		lines = append(lines, coordinatorLine{
			Instance: c.GetInstance(), Version: c.GetVersion(), State: stateOfCoordinator(c.GetState()), Self: c.GetSelf(),
			StartedAt: c.GetStartTime().AsTime(), SeenAt: c.GetLastSeenTime().AsTime(), Restarts: c.GetRestarts(),
			Leases: held.Leases, LeaseUntil: held.Until,
		})
	}
	for _, instance := range slices.Sorted(maps.Keys(holders)) {
		lines = append(lines, coordinatorLine{
			Instance: instance, State: "unknown", Leases: holders[instance].Leases, LeaseUntil: holders[instance].Until,
		})
	}
	return lines
}

func stateOfCoordinator(s adminv1.CoordinatorState) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "COORDINATOR_STATE_"))
}

// described names the exchange, and its broker unless that is the default broker.
func (e exchangeLine) described() string {
	if e.Broker == "" {
		return "Exchange " + exchangeName(e.Name)
	}
	return fmt.Sprintf("Exchange %s of broker %s", exchangeName(e.Name), e.Broker)
}

// The meaning of each state, for operators who see the state for the first time at night.
var means = map[halfmsg.State]string{
	halfmsg.Pending:      "no verdict from its producer yet",
	halfmsg.Sendable:     "committed; on its way to the broker, or waiting for its delay",
	halfmsg.Abandoned:    "no verdict up to the limit of attempts or time; an operator must decide",
	halfmsg.Dead:         "refused by the broker at every try; an operator must decide",
	halfmsg.Acknowledged: "published; its marker is not deleted yet",
}

func (p *Pages) overview(r *http.Request) answer {
	now := time.Now()
	data := overviewData{Checks: p.config.Check(r.Context()), Findings: p.config.Findings()}
	stats, err := p.config.Stats(r.Context())
	owners, _ := p.config.Owners(r.Context()) // an unavailable Redis is reported first anyway
	data.Held = owners.Held
	data.Coordinators = coordinatorSheet(r, coordinatorLines(p.config.Coordinators(), owners))
	recent, _ := p.config.Charts(r.Context(), history.Ranges[0])
	if latest, known := recent.Latest(); known {
		data.Refused = latest.Refused
	}
	peers := p.config.Peers()
	data.setPeers(peers.Producers(), peers.Exchanges(), now)
	data.ProducerSheet, data.ExchangeSheet = producerSheet(r, data.Producers), exchangeSheet(r, data.Exchanges)
	data.Charts = p.charts(r, now)
	data.States = stateLines(stats, err == nil, data.Charts.series)
	data.find(err, p.config.Overdue(), now)
	data.date(p.config.Since)
	title := "All is well"
	if len(data.Problems) > 0 {
		title = fmt.Sprintf("%d to check", len(data.Problems))
	}
	return answer{page: "overview", title: title, data: data}
}

// setPeers marks the producers and exchanges that are down.
func (d *overviewData) setPeers(producers []peerstats.Producer, exchanges []peerstats.Exchange, now time.Time) {
	for _, p := range producers {
		d.Summed = max(d.Summed, p.Of)
		d.Producers = append(d.Producers, producerLine{p, p.Down(now)})
	}
	for _, e := range exchanges {
		d.Exchanges = append(d.Exchanges, exchangeLine{e, e.Down(now)})
	}
}

// shownStates are the states of lists, in the order of a message's way.
var shownStates = []halfmsg.State{
	halfmsg.Pending, halfmsg.Sendable, halfmsg.Acknowledged, halfmsg.Abandoned, halfmsg.Dead,
}

func stateLines(stats []halfmsg.Stat, known bool, series history.Series) []stateLine {
	byState := map[halfmsg.State]halfmsg.Stat{}
	for _, stat := range stats {
		byState[stat.State] = stat
	}
	var lines []stateLine
	for _, state := range shownStates {
		stat := byState[state]
		line := stateLine{
			State:    state,
			Means:    means[state],
			Count:    stat.Count,
			Known:    known,
			Oldest:   stat.OldestAt,
			FirstDue: stat.FirstDueAt,
		}
		values := series.Values(func(b history.Bucket) float64 {
			if b.Counts == nil {
				return math.NaN()
			}
			return float64(b.Counts[state])
		})
		line.Line = history.NewLine(values, history.Linear(values))
		if stat.Count > 0 && (state == halfmsg.Abandoned || state == halfmsg.Dead) {
			line.Tone = "bad"
		}
		lines = append(lines, line)
	}
	return lines
}

// exchangeName names the default exchange too, which has no name.
func exchangeName(name string) string {
	if name == "" {
		return "(default)"
	}
	return name
}

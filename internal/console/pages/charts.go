package pages

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/console/history"
	"github.com/msghandler/msghandler/internal/operate"
)

// chartsData are the charts of the overview: of all messages, of a producer or of an exchange.
type chartsData struct {
	chartWindow
	marksData
	// Of names the producer or the exchange; empty: all messages.
	Of string
	// All leads to the charts of all messages, and Fields are what the form of a free window keeps of the address.
	All    string
	Fields url.Values
	Charts []chart
	// Trouble says why the charts are not fresh.
	Trouble string

	series history.Series
}

// chart is a chart with its axes.
type chart struct {
	Title string
	Lines []chartLine
	// Logarithmic says that equal steps of the vertical axis are equal factors.
	Logarithmic bool
	// Edge is the end of the vertical axis where values are above, and Peak the highest of them, at PeakAt.
	Edge, Peak string
	PeakAt     time.Time
	// Scale are the values of the vertical axis, Ticks the times of the other axis.
	Scale []scaleTick
	Ticks []history.Tick
	// Start is when the first step begins, and Step its time.
	Start time.Time
	Step  time.Duration
	// Rows are the highest values of each part of the range, as a text alternative.
	Rows []chartRow
}

type chartLine struct {
	history.Line
	Name, Now, Top, Kind string
	// Values are the values of all steps in words, each followed by a bar.
	Values string
}

// scaleTick is a round value on the vertical axis, at a place in percent from below.
type scaleTick struct {
	Place float64
	Label string
}

// chartRow has the highest values of a part of a chart.
type chartRow struct {
	From, Until time.Time
	Values      []string
}

// chartParts is the number of rows of a chart's table.
const chartParts = 12

// quantity is a line to draw: its name and its value in a bucket.
type quantity struct {
	name  string
	value func(b history.Bucket) float64
}

// unit is how values are written, and the axis on which they stand.
type unit struct {
	write func(float64) string
	axis  func(all ...[]float64) history.Axis
}

var (
	numbers = unit{rate, history.Linear}
	seconds = unit{
		func(v float64) string { return operate.Duration(time.Duration(v * float64(time.Second))) }, history.Times,
	}
)

// charts draws the charts that a request asks for.
func (p *Pages) charts(r *http.Request, now time.Time) chartsData {
	data := chartsData{chartWindow: readWindow(r, now), Fields: url.Values{}}
	kind, name := "", ""
	if producer := r.FormValue("producer"); producer != "" {
		kind, name, data.Of = history.ProducerKind, producer, "producer "+producer
		data.Fields.Set("producer", producer)
	} else if r.Form.Has("exchange") {
		exchange, broker := r.FormValue("exchange"), r.FormValue("broker")
		kind, name, data.Of = history.ExchangeKind, history.ExchangeKey(broker, exchange), "exchange "+exchangeName(exchange)
		data.Fields.Set("exchange", exchange)
		if broker != "" {
			data.Of += " of broker " + broker
			data.Fields.Set("broker", broker)
		}
	}
	if data.Of != "" {
		data.All = data.link(url.Values{})
	}
	data.Tabs = data.tabsOf(maps.Clone(data.Fields))
	series, err := p.config.Charts(r.Context(), data.Range)
	if err != nil {
		data.Trouble = err.Error()
	}
	data.series = series.In(data.Window)
	switch kind {
	case history.ProducerKind:
		data.Charts = producerCharts(data.series, name)
	case history.ExchangeKind:
		data.Charts = exchangeCharts(data.series, name)
	default:
		data.Charts = flowCharts(data.series)
	}
	if err == nil { // otherwise Redis, which keeps them too, does not answer
		data.marksData = p.marks(r, data.series)
	}
	return data
}

// Within is the time that the charts show.
func (d chartsData) Within() time.Duration { return d.series.Span() }

// OfProducer leads to the charts of a producer, in the same window.
func (d chartsData) OfProducer(name string) string { return d.link(url.Values{"producer": {name}}) }

// OfExchange leads to the charts of an exchange, in the same window.
func (d chartsData) OfExchange(broker, name string) string {
	query := url.Values{"exchange": {name}}
	if broker != "" {
		query.Set("broker", broker)
	}
	return d.link(query)
}

// flowCharts are the charts of all messages.
func flowCharts(s history.Series) []chart {
	charts := []chart{
		newChart(s, "Messages per second", numbers,
			quantity{"in", func(b history.Bucket) float64 { return b.Rate(b.In) }},
			quantity{"out", func(b history.Bucket) float64 { return b.Rate(b.Out) }}),
		newChart(s, "From half message to acknowledgement", seconds, quantile("p50", .5), quantile("p99", .99)),
	}
	refused := newChart(s, "Refused calls per "+stepWords(s), numbers,
		quantity{"refused", func(b history.Bucket) float64 { return float64(b.Refused) }})
	if refused.Lines[0].Line.Top > 0 {
		charts = append(charts, refused)
	}
	return charts
}

// producerCharts are the charts of a producer.
func producerCharts(s history.Series, name string) []chart {
	count := func(b history.Bucket, i int) int64 { return b.Named(history.ProducerKind, name)[i] }
	return []chart{
		newChart(s, "Messages per second", numbers,
			quantity{"in", func(b history.Bucket) float64 { return b.Rate(count(b, 0)) }},
			quantity{"out", func(b history.Bucket) float64 { return b.Rate(count(b, 1)) }}),
		newChart(s, "Refused calls per "+stepWords(s), numbers,
			quantity{"refused", func(b history.Bucket) float64 { return float64(count(b, 2)) }}),
	}
}

// exchangeCharts are the charts of an exchange.
func exchangeCharts(s history.Series, name string) []chart {
	count := func(b history.Bucket, i int) int64 { return b.Named(history.ExchangeKind, name)[i] }
	return []chart{
		newChart(s, "Messages per second", numbers,
			quantity{"acknowledged", func(b history.Bucket) float64 { return b.Rate(count(b, 0)) }}),
		newChart(s, "Failed publishes per "+stepWords(s), numbers,
			quantity{"refused", func(b history.Bucket) float64 { return float64(count(b, 1)) }},
			quantity{"without a clear answer", func(b history.Bucket) float64 { return float64(count(b, 2)) }}),
	}
}

// quantile is a quantile of the latencies in seconds.
func quantile(name string, q float64) quantity {
	return quantity{name, func(b history.Bucket) float64 {
		if d, known := b.Latency.Quantile(q); known {
			return d.Seconds()
		}
		return math.NaN()
	}}
}

// stepWords writes the step of a series.
func stepWords(s history.Series) string {
	return operate.Duration(s.Range.Step)
}

// newChart draws quantities on one scale.
func newChart(s history.Series, title string, in unit, quantities ...quantity) chart {
	c := chart{Title: title, Ticks: s.Ticks(), Start: s.TimeOf(0).UTC(), Step: s.Range.Step}
	values := make([][]float64, len(quantities))
	for i, q := range quantities {
		values[i] = s.Values(q.value)
	}
	axis := in.axis(values...)
	c.Logarithmic = axis.Logarithmic
	for _, v := range axis.Marks {
		label := "0"
		if v > 0 {
			label = shortUnits.Replace(in.write(v)) // a round value needs no digit behind the point
		}
		c.Scale = append(c.Scale, scaleTick{100 * axis.Place(v), label})
	}
	for i, q := range quantities {
		c.Lines = append(c.Lines, newChartLine(q.name, []string{"one", "two"}[i], values[i], axis, in.write))
	}
	if axis.Cut {
		c.setPeak(s, values, axis, in.write)
	}
	c.Rows = rows(s, values, in.write)
	return c
}

// shortUnits shortens round values.
var shortUnits = strings.NewReplacer(".0", "", " 0 s", "", " 0 min", "")

// setPeak tells of the values above the end of the axis.
func (c *chart) setPeak(s history.Series, values [][]float64, axis history.Axis, write func(float64) string) {
	top := 0.0
	for _, of := range values {
		for i, v := range of {
			if v > top {
				top, c.PeakAt = v, s.TimeOf(i).UTC()
			}
		}
	}
	c.Peak, c.Edge = write(top), shortUnits.Replace(write(axis.Marks[len(axis.Marks)-1]))
}

func newChartLine(name, kind string, values []float64, on history.Axis, write func(float64) string) chartLine {
	line := chartLine{Line: history.NewLine(values, on), Name: name, Kind: kind, Now: "-", Top: "-"}
	if line.Known {
		line.Top = write(line.Line.Top)
	}
	if !math.IsNaN(line.Last) {
		line.Now = write(line.Last)
	}
	var words strings.Builder
	for _, v := range values {
		if !math.IsNaN(v) {
			words.WriteString(write(v))
		}
		words.WriteByte('|')
	}
	line.Values = words.String()
	return line
}

// rows are the highest values of each part of a range. Parts without values are left out.
func rows(s history.Series, values [][]float64, write func(float64) string) (all []chartRow) {
	each := max(1, len(values[0])/chartParts)
	for from := 0; from < len(values[0]); from += each {
		until := min(from+each, len(values[0]))
		row := chartRow{From: s.TimeOf(from).UTC(), Until: s.TimeOf(until).UTC()}
		known := false
		for _, of := range values {
			line := history.NewLine(of[from:until], history.Linear())
			known = known || line.Known
			word := "-"
			if line.Known {
				word = write(line.Top)
			}
			row.Values = append(row.Values, word)
		}
		if known {
			all = append(all, row)
		}
	}
	return all
}

// Text describes a chart in a sentence.
func (c chart) Text() string {
	var parts []string
	for _, line := range c.Lines {
		parts = append(parts, fmt.Sprintf("%s now %s, at most %s", line.Name, line.Now, line.Top))
	}
	return c.Title + ": " + strings.Join(parts, "; ")
}

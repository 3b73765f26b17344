package console

import "github.com/prometheus/client_golang/prometheus"

// Letters exports the number of dead letters by queue, of each queue whose broker has answered.
func (m *Metrics) Letters(counts func() map[string]int) {
	m.register(queueCollector{lettersDesc, counts})
}

var lettersDesc = prometheus.NewDesc("msghandler_dead_letters",
	"Dead letters of consumers in a queue, by its name in dead_letters or events.dead_letter_queues. They are counted "+
		"each 15 s, and missing while the broker does not answer.", []string{"queue"}, nil)

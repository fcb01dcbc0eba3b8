package agents

import (
	"bytes"
	"unicode/utf8"

	"berth/jobs"
)

// mini reads the trajectory of mini-swe-agent: one document, written again after each
// step, so that there is nothing before its end.
type mini struct {
	whole []byte
	long  bool
}

// maxWhole bounds a trajectory, in bytes.
const maxWhole = 16 << 20

type miniFile struct {
	Info struct {
		Stats struct {
			USD   float64 `json:"instance_cost"`
			Calls int     `json:"api_calls"`
		} `json:"model_stats"`
		Version string `json:"mini_version"`
		Status  string `json:"exit_status"`
	}
	Messages []struct {
		Role    string
		Content words
		Extra   struct {
			Actions []struct{ Command string }
			Code    *int `json:"returncode"`
			Cost    float64
		}
	}
	Format string `json:"trajectory_format"`
}

func (m *mini) line(_ *Decoder, b []byte) bool {
	if m.long = m.long || len(m.whole)+len(b) >= maxWhole; !m.long {
		m.whole = append(append(m.whole, b...), '\n')
	}
	return true
}

func (m *mini) end(d *Decoder) {
	var f miniFile
	switch whole := bytes.TrimSpace(m.whole); {
	case m.long:
		d.Seen.Long++
		return
	case !read(whole, &f) || f.Messages == nil:
		if len(whole) > 0 {
			d.Seen.Text++
			d.emit(Event{Kind: KindText, Text: text(string(whole[:min(len(whole), maxText+utf8.UTFMax)]), maxText)})
		}
		return
	}
	d.emit(Event{Kind: KindStart, Version: name(f.Info.Version)})
	for _, msg := range f.Messages {
		switch {
		case msg.Role == "assistant":
			d.emit(Event{Kind: KindTurn})
			d.message(KindMessage, string(msg.Content), false)
			for _, a := range msg.Extra.Actions {
				d.emit(Event{Kind: KindTool, Tool: "bash", Arg: line(a.Command, maxShort)})
			}
		case msg.Extra.Code != nil: // what a command has printed
			d.result(string(msg.Content), "", *msg.Extra.Code != 0, false)
		}
	}
	e := Event{Kind: KindEnd, Failed: f.Info.Status != "Submitted", Turns: max(f.Info.Stats.Calls, 0), Whole: true}
	if usd := dollars(f.Info.Stats.USD); usd > 0 {
		e.Usage = &jobs.Usage{USD: usd}
	}
	if e.Failed {
		if e.Text = line(f.Info.Status, maxShort); f.Info.Status == "LimitsExceeded" {
			e.Reason = ReasonUSD // or turns: it has one word for both
		}
	}
	d.emit(e)
}

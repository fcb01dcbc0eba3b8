package top

import (
	"time"

	tea "charm.land/bubbletea/v2"
)

// frame is the least time between two drawings of the screen: changes within it go out
// together, which a slow connection needs, and a key is answered within it.
const frame = 100 * time.Millisecond

// paced draws a model once a frame at most. What comes after a pause is drawn at once, and so
// is all until the first lists are there: the library's own bound would hold back the first screen.
type paced struct {
	*model
	view  tea.View
	drawn time.Time
	due   bool // a frameMsg is on its way
}

// frameMsg is that a frame is over.
type frameMsg struct{}

func newPaced(m *model) *paced {
	p := &paced{model: m}
	p.draw()
	return p
}

func (p *paced) draw() {
	p.view, p.drawn = p.model.View(), p.Now()
}

func (p *paced) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	if _, is := msg.(frameMsg); is {
		p.due = false
		p.draw()
		return p, nil
	}
	first := p.read.IsZero()
	_, cmd := p.model.Update(msg)
	wait := p.drawn.Add(frame).Sub(p.Now())
	switch {
	case p.due:
	case first || wait <= 0 || wait > frame: // the clock may have been set back
		p.draw()
	default:
		p.due = true
		cmd = tea.Batch(cmd, p.tick(wait, func(time.Time) tea.Msg { return frameMsg{} }))
	}
	return p, cmd
}

// View implements [tea.Model].
func (p *paced) View() tea.View { return p.view }

// Package browser opens pages that berth writes in Debian's chromium, for tests: at the widths of
// a phone, a tablet and a desk, light and dark. What is wrong is measured in their documents:
// nothing is wider than the page, no label of a picture is cut or over another one, texts have
// contrast and size, nothing was requested, no script ran, hostile texts are text.
package browser

// A view that asks the gateway again and again while it is shown: `refresh` is what it does each time.

export class Polling {
  constructor(milliseconds) {
    this.milliseconds = milliseconds;
    this.timer = null;
  }

  show() {
    if (this.timer === null) this.load();
  }

  hide() {
    clearTimeout(this.timer);
    this.timer = null;
  }

  load() {
    this.timer = setTimeout(() => this.load(), this.milliseconds);
    this.refresh();
  }
}

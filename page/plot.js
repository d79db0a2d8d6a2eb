// Plots in SVG.
